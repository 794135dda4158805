package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// absent is the value of an expression whose optional is empty: the member that
// it stands for is left out.
type absent struct{}

// maxValueNodes bounds what one expression may build.
const maxValueNodes = 100_000

// fromCEL gives what an expression made as a JSON value: the way back from
// toCEL. An empty optional at the top is absent{}; inside an object or a list it
// is left out.
func fromCEL(v ref.Val) (any, error) {
	nodes := 0
	return celValue(v, &nodes, 0)
}

func celValue(v ref.Val, nodes *int, depth int) (any, error) {
	if *nodes++; *nodes > maxValueNodes || depth > maxDocumentDepth {
		return nil, errors.New("the value is too large")
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.String:
		return string(v), nil
	case types.Int:
		return json.Number(strconv.FormatInt(int64(v), 10)), nil
	case types.Uint:
		return json.Number(strconv.FormatUint(uint64(v), 10)), nil
	case types.Double:
		f := float64(v)
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, errors.New("the number is not finite")
		}
		text, err := json.Marshal(f)
		return json.Number(text), err
	case types.Timestamp:
		return v.Time.UTC().Format(time.RFC3339Nano), nil
	case *types.Optional:
		if !v.HasValue() {
			return absent{}, nil
		}
		return celValue(v.GetValue(), nodes, depth)
	case traits.Mapper:
		return celMap(v, nodes, depth)
	case traits.Lister:
		return celList(v, nodes, depth)
	case *types.Err:
		return nil, v
	}
	return nil, fmt.Errorf("a %s can't be sent or stored", v.Type().TypeName())
}

func celMap(m traits.Mapper, nodes *int, depth int) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("a member is named by a %s, not by text", key.Type().TypeName())
		}
		value, err := celValue(m.Get(key), nodes, depth+1)
		if err != nil {
			return nil, err
		}
		if _, none := value.(absent); !none {
			out[string(name)] = value
		}
	}
	return out, nil
}

func celList(l traits.Lister, nodes *int, depth int) (any, error) {
	out := []any{}
	for it := l.Iterator(); it.HasNext() == types.True; {
		value, err := celValue(it.Next(), nodes, depth+1)
		if err != nil {
			return nil, err
		}
		if _, none := value.(absent); !none {
			out = append(out, value)
		}
	}
	return out, nil
}

// textOf writes a scalar as it stands inside a text.
func textOf(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return string(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case nil:
		return "", errors.New("null can't stand inside a text")
	case absent:
		return "", errors.New("an absent value can't stand inside a text")
	case []any:
		return "", errors.New("a list can't stand inside a text")
	}
	return "", errors.New("an object can't stand inside a text")
}
