package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"countersign"
	"countersign/fault"
)

// contract is what the middlewares need of openapi.yaml: for each route who may
// call it, its query parameters and its body.
type contract struct {
	routes map[string]*route // by method and path, as "GET /v1/tools/{tool}"
}

// route is one operation of the contract.
type route struct {
	operation string // its operationId
	path      string
	// agents and operators say whose credential it takes.
	agents, operators bool
	query             map[string]parameter
	// key is the schema of the Idempotency-Key header, where there is one.
	key  *jsonschema.Schema
	body *bodySchema
}

// name is the operationId; empty where no route matched.
func (r *route) name() string {
	if r == nil {
		return ""
	}
	return r.operation
}

// parameter is one query parameter.
type parameter struct {
	schema *jsonschema.Schema
	// repeats: it may stand several times.
	repeats bool
}

// bodySchema is what a request body must look like.
type bodySchema struct {
	schema *jsonschema.Schema
	// optional: it may be left out, which means the empty object.
	optional bool
	// codes are the codes that answer a violation at a member, by its name; ""
	// stands for every other member.
	codes map[string]fault.Code
}

// of finds the route of a matched request; HEAD stands for GET.
func (c *contract) of(method, path string) *route {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return c.routes[method+" "+path]
}

// The parts of an OpenAPI document that are read here.
type (
	document struct {
		Paths      map[string]map[string]json.RawMessage
		Security   []map[string][]string
		Components struct {
			Parameters map[string]parameterPart
			Schemas    map[string]schemaPart
		}
	}
	operationPart struct {
		OperationID string
		Security    *[]map[string][]string
		Parameters  []parameterPart
		RequestBody *struct {
			Required bool
			Content  map[string]struct{ Schema schemaPart }
		}
	}
	parameterPart struct {
		Ref    string `json:"$ref"`
		Name   string
		In     string
		Schema schemaPart
	}
	schemaPart struct {
		Ref        string `json:"$ref"`
		Type       string
		Properties map[string]schemaPart
		Code       fault.Code `json:"x-violation-code"`
	}
)

const documentURL = "urn:countersign:openapi"

// theContract is the contract that this program serves, read once: it never
// changes.
var theContract = sync.OnceValues(func() (*contract, error) { return readContract(countersign.OpenAPI) })

// readContract parses openapi.yaml and compiles the schemas in it.
func readContract(text []byte) (*contract, error) {
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(asJSON, &doc); err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.Draft = jsonschema.Draft2020
	compiler.AssertFormat = true
	compiler.LoadURL = func(string) (io.ReadCloser, error) {
		return nil, errors.New("the contract refers to another document")
	}
	if err := compiler.AddResource(documentURL, bytes.NewReader(asJSON)); err != nil {
		return nil, err
	}
	r := contractReader{doc: doc, compile: func(pointer string) (*jsonschema.Schema, error) {
		return compiler.Compile(documentURL + "#" + pointer)
	}}
	c := &contract{routes: map[string]*route{}}
	for path, methods := range doc.Paths {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			part, ok := methods[strings.ToLower(method)]
			if !ok {
				continue
			}
			rt, err := r.route(method, path, part)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			c.routes[method+" "+path] = rt
		}
	}
	return c, nil
}

type contractReader struct {
	doc     document
	compile func(pointer string) (*jsonschema.Schema, error)
}

func (r contractReader) route(method, path string, part json.RawMessage) (*route, error) {
	var op operationPart
	if err := json.Unmarshal(part, &op); err != nil {
		return nil, err
	}
	rt := &route{operation: op.OperationID, path: path, query: map[string]parameter{}}
	security := r.doc.Security
	if op.Security != nil {
		security = *op.Security
	}
	for _, alternative := range security {
		_, agent := alternative["agentKey"]
		_, operator := alternative["operatorSession"]
		rt.agents, rt.operators = rt.agents || agent, rt.operators || operator
	}
	at := "/paths/" + escape(path) + "/" + strings.ToLower(method)
	for i, p := range op.Parameters {
		pointer := fmt.Sprintf("%s/parameters/%d", at, i)
		if p.Ref != "" {
			pointer = strings.TrimPrefix(p.Ref, "#")
			p = r.doc.Components.Parameters[p.Ref[strings.LastIndex(p.Ref, "/")+1:]]
		}
		schema, err := r.compile(pointer + "/schema")
		if err != nil {
			return nil, err
		}
		switch p.In {
		case "query":
			rt.query[p.Name] = parameter{schema: schema, repeats: p.Schema.Type == "array"}
		case "header":
			rt.key = schema
		}
	}
	if op.RequestBody == nil {
		return rt, nil
	}
	schema, err := r.compile(at + "/requestBody/content/application~1json/schema")
	if err != nil {
		return nil, err
	}
	content := op.RequestBody.Content["application/json"].Schema
	if content.Ref != "" {
		content = r.doc.Components.Schemas[content.Ref[strings.LastIndex(content.Ref, "/")+1:]]
	}
	rt.body = &bodySchema{schema: schema, optional: !op.RequestBody.Required, codes: map[string]fault.Code{"": fault.SchemaViolation}}
	if content.Code != "" {
		rt.body.codes[""] = content.Code
	}
	for name, member := range content.Properties {
		if member.Code != "" {
			rt.body.codes[name] = member.Code
		}
	}
	return rt, nil
}

// escape makes a path one token of a JSON Pointer in a URL fragment.
func escape(path string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path)
}
