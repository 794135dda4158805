package tools

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"golang.org/x/text/currency"
)

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// FormatMoney writes minor units of an ISO 4217 currency for people:
// 1234567, EUR → "12,345.67 EUR". Of a currency whose minor unit is not known
// the minor units themselves are shown, so that nothing is guessed.
func FormatMoney(minor int64, code string) (string, error) {
	if !currencyCode.MatchString(code) {
		return "", fmt.Errorf("%q is not an ISO 4217 currency code", code)
	}
	digits := strings.TrimPrefix(strconv.FormatInt(minor, 10), "-")
	sign := ""
	if minor < 0 {
		sign = "-"
	}
	unit, err := currency.ParseISO(code)
	if err != nil {
		return sign + grouped(digits) + " minor units of " + code, nil
	}
	scale, _ := currency.Standard.Rounding(unit)
	for len(digits) <= scale {
		digits = "0" + digits
	}
	whole, fraction := digits[:len(digits)-scale], digits[len(digits)-scale:]
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + grouped(whole) + fraction + " " + code, nil
}

// grouped puts a comma between groups of three digits.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// sumMoney adds up the money of effects. Another currency is an error: an amount
// in it would slip past a rule that names this one.
func sumMoney(effects traits.Lister, code string) (int64, error) {
	var sum int64
	for it := effects.Iterator(); it.HasNext() == types.True; {
		effect, ok := it.Next().(traits.Mapper)
		if !ok {
			return 0, fmt.Errorf("not a list of effects")
		}
		value, ok := effect.Find(types.String("money"))
		if !ok {
			continue
		}
		money, ok := value.(traits.Mapper)
		if !ok {
			return 0, fmt.Errorf("an effect's money is not an object")
		}
		amount, okAmount := money.Get(types.String("amount")).(types.Int)
		unit, okUnit := money.Get(types.String("currency")).(types.String)
		switch {
		case !okAmount || !okUnit:
			return 0, fmt.Errorf("an effect's money has no amount or no currency")
		case string(unit) != code:
			return 0, fmt.Errorf("an effect is in %s, the rule in %s", string(unit), code)
		}
		next := sum + int64(amount)
		if (next > sum) != (amount > 0) && amount != 0 {
			return 0, fmt.Errorf("the sum of money is too large")
		}
		sum = next
	}
	return sum, nil
}

// sumCount adds up count or outside of effects.
func sumCount(effects traits.Lister, field string) ref.Val {
	var sum ref.Val = types.Int(0)
	for it := effects.Iterator(); it.HasNext() == types.True; {
		effect, ok := it.Next().(traits.Mapper)
		if !ok {
			return types.NewErr("not a list of effects")
		}
		if n, ok := effect.Find(types.String(field)); ok {
			sum = sum.(traits.Adder).Add(n)
		}
		if types.IsError(sum) {
			return sum
		}
	}
	return sum
}

// ownFunctions are what expressions have beyond the standard: money(minor,
// currency), effects.money(currency), effects.count(), effects.outside().
func ownFunctions() []cel.EnvOption {
	// Of dyn, because an overload is chosen by the values at run time, and an
	// effect is a map there.
	effects := cel.ListType(cel.DynType)
	count := func(field string) cel.OverloadOpt {
		return cel.UnaryBinding(func(v ref.Val) ref.Val { return sumCount(v.(traits.Lister), field) })
	}
	return []cel.EnvOption{
		cel.Function("money",
			cel.Overload("money_minor_currency", []*cel.Type{cel.IntType, cel.StringType}, cel.StringType,
				cel.BinaryBinding(func(minor, code ref.Val) ref.Val {
					text, err := FormatMoney(int64(minor.(types.Int)), string(code.(types.String)))
					if err != nil {
						return types.WrapErr(err)
					}
					return types.String(text)
				})),
			cel.MemberOverload("effects_money_currency", []*cel.Type{effects, cel.StringType}, cel.IntType,
				cel.BinaryBinding(func(list, code ref.Val) ref.Val {
					sum, err := sumMoney(list.(traits.Lister), string(code.(types.String)))
					if err != nil {
						return types.WrapErr(err)
					}
					return types.Int(sum)
				}))),
		cel.Function("count", cel.MemberOverload("effects_count", []*cel.Type{effects}, cel.IntType, count("count"))),
		cel.Function("outside", cel.MemberOverload("effects_outside", []*cel.Type{effects}, cel.IntType, count("outside"))),
	}
}
