package tools

import (
	"encoding/json"
	"slices"

	"cel.dev/cel-go/common/types"

	"countersign/strictjson"
)

// Names of the object types of expressions. They hold a blank, so that no
// expression can name or build them.
const (
	argsType    = "args object"
	agentType   = "agent object"
	keyType     = "key object"
	readsType   = "reads object"
	effectType  = "effect object"
	moneyType   = "money object"
	resultType  = "result object"
	responseFmt = "read object "
)

// typeProvider tells the type checker the fields of our objects. Values stay
// plain Go maps; only the checker sees the types.
type typeProvider struct {
	types.Provider
	objects map[string]map[string]*types.Type
}

// FindStructType implements types.Provider.
func (p *typeProvider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.objects[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *typeProvider) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ok := p.objects[name]; ok {
		names := make([]string, 0, len(fields))
		for f := range fields {
			names = append(names, f)
		}
		slices.Sort(names)
		return names, true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider. The result has no accessors,
// so that values are read as maps.
func (p *typeProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields, ok := p.objects[name]; ok {
		t, ok := fields[field]
		if !ok {
			return nil, false
		}
		return &types.FieldType{Type: t}, true
	}
	return p.Provider.FindStructFieldType(name, field)
}

// declare adds an object type.
func (p *typeProvider) declare(name string, fields map[string]*types.Type) *types.Type {
	p.objects[name] = fields
	return types.NewObjectType(name)
}

// fixedTypes are the objects that every manifest has.
func (p *typeProvider) fixedTypes() {
	text := types.StringType
	p.declare(agentType, map[string]*types.Type{"id": text, "name": text, "owner": text, "tenant": text})
	p.declare(keyType, map[string]*types.Type{"value": text, "generation": types.IntType, "upstream": text})
	money := p.declare(moneyType, map[string]*types.Type{"amount": types.IntType, "currency": text})
	flat := types.NewMapType(text, types.DynType)
	p.declare(effectType, map[string]*types.Type{
		"verb": text, "target": text, "summary": text, "before": flat, "after": flat, "money": money,
		"count": types.IntType, "outside": types.IntType,
	})
}

// fromShape gives the type of values that a schema describes; name is given to
// it if it is an object. Whatever can be several things is dyn.
func (p *typeProvider) fromShape(s *shape, name string) *types.Type {
	return p.shapeType(s, name, nil)
}

func (p *typeProvider) shapeType(s *shape, name string, open []*shape) *types.Type {
	if s == nil || slices.Contains(open, s) {
		return types.DynType
	}
	open = append(open, s)
	if len(s.types) == 0 && len(s.sure) == 1 && len(s.maybe) == 0 && len(s.properties) == 0 {
		return p.shapeType(s.sure[0], name, open) // a plain $ref
	}
	kinds, nullable := slices.Clone(s.types), false
	if i := slices.Index(kinds, "null"); i >= 0 && len(kinds) > 1 {
		kinds, nullable = slices.Delete(kinds, i, i+1), true
	}
	if len(kinds) == 0 && len(s.properties) > 0 {
		kinds = []string{"object"}
	}
	if len(kinds) != 1 {
		return types.DynType
	}
	scalar := map[string]*types.Type{
		"string": types.StringType, "integer": types.IntType, "number": types.DoubleType, "boolean": types.BoolType,
	}
	switch {
	case scalar[kinds[0]] != nil && nullable:
		return types.NewNullableType(scalar[kinds[0]])
	case scalar[kinds[0]] != nil:
		return scalar[kinds[0]]
	case kinds[0] == "null":
		return types.NullType
	case kinds[0] == "array" && !nullable && len(s.prefix) == 0:
		return types.NewListType(p.shapeType(s.items, name+" element", open))
	case kinds[0] == "object":
		return p.objectType(s, name, open)
	}
	return types.DynType
}

// objectType is an object with known members, or a map.
func (p *typeProvider) objectType(s *shape, name string, open []*shape) *types.Type {
	if s.composed && name != argsType {
		return types.DynType // members may be declared by an alternative
	}
	if len(s.properties) == 0 {
		if s.additional != nil && len(s.byPattern) == 0 {
			return types.NewMapType(types.StringType, p.shapeType(s.additional, name+" member", open))
		}
		return types.NewMapType(types.StringType, types.DynType)
	}
	fields := make(map[string]*types.Type, len(s.properties))
	for _, member := range s.names {
		fields[member] = p.shapeType(s.properties[member], name+" "+member, open)
	}
	return p.declare(name, fields)
}

// toCEL gives a JSON value to the engine as the type that the checker was told:
// numbers become int64 or float64.
func (p *typeProvider) toCEL(v any, t *types.Type) any {
	switch v := v.(type) {
	case json.Number:
		n := strictjson.Native(v)
		if i, ok := n.(int64); ok && t != nil && t.Kind() == types.DoubleKind {
			return float64(i)
		}
		return n
	case map[string]any:
		var fields map[string]*types.Type
		var member *types.Type
		if t != nil {
			fields = p.objects[t.TypeName()]
			if t.Kind() == types.MapKind {
				member = t.Parameters()[1]
			}
		}
		out := make(map[string]any, len(v))
		for name, m := range v {
			mt := member
			if fields != nil {
				mt = fields[name]
			}
			out[name] = p.toCEL(m, mt)
		}
		return out
	case []any:
		var item *types.Type
		if t != nil && t.Kind() == types.ListKind {
			item = t.Parameters()[0]
		}
		out := make([]any, len(v))
		for i, m := range v {
			out[i] = p.toCEL(m, item)
		}
		return out
	}
	return v
}
