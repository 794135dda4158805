package api

import (
	"context"
	"encoding/json"
	"regexp"

	"countersign/fault"
	"countersign/tools"
)

// toolForm is what a tool's name may look like.
var toolForm = regexp.MustCompile(`^[a-z][a-z0-9_]{1,47}$`)

func (h handlers) ListTools(ctx context.Context, _ ListToolsRequestObject) (ListToolsResponseObject, error) {
	list := ToolList{Tools: []Tool{}}
	for _, t := range h.cfg.Registry.List() {
		if !granted(ctx, t.Name) {
			continue
		}
		shown, err := toolOf(t)
		if err != nil {
			return nil, err
		}
		list.Tools = append(list.Tools, shown)
	}
	return ListTools200JSONResponse(list), nil
}

func (h handlers) GetTool(ctx context.Context, r GetToolRequestObject) (GetToolResponseObject, error) {
	t, ok := h.cfg.Registry.Get(r.Tool)
	switch {
	case !ok:
		return nil, h.advise(of(ctx).who, r.Tool, toolNotFound())
	case !granted(ctx, t.Name):
		return nil, fault.New(fault.ToolNotGranted, "This agent has no grant for the tool %s.", t.Name)
	}
	shown, err := toolOf(t)
	return GetTool200JSONResponse(shown), err
}

func (h handlers) CallTool(ctx context.Context, r CallToolRequestObject) (CallToolResponseObject, error) {
	agent := *of(ctx).who.agent
	// The version is that of the tool which is called, also under a reload.
	t, err := h.cfg.Preview.Tool(r.Tool, agent, tools.Read)
	if err != nil {
		return nil, h.advise(of(ctx).who, r.Tool, err)
	}
	result, err := h.cfg.Preview.Call(ctx, agent, r.Tool, argsOf(ctx))
	if err != nil {
		return nil, underArgs(err)
	}
	return CallTool200JSONResponse{Tool: t.Name, ToolVersion: t.Version, Result: result}, nil
}

// granted reports whether the caller may use a tool.
func granted(ctx context.Context, tool string) bool {
	return mayUse(of(ctx).who, tool)
}

// toolOf shows a tool without its manifest: rules and expressions are for the
// people who wrote them, and a limit that an agent knows is a limit that it can
// stay under.
func toolOf(t *tools.Tool) (Tool, error) {
	shown := Tool{
		Name: t.Name, Description: t.Description, Access: ToolAccess(t.Access), Version: t.Version, NeedsRun: t.NeedsRun,
	}
	if err := json.Unmarshal(t.InputSchema, &shown.InputSchema); err != nil {
		return Tool{}, fault.Wrap(err, fault.Internal, "The tool's schema can't be read.")
	}
	if t.Access == tools.Read {
		return shown, nil
	}
	reversible, honours := t.Reversible, t.HonoursKey
	shown.Reversible, shown.HonoursKey = &reversible, &honours
	shown.KeySource, shown.Lookup = ToolKeySource(t.KeySource), ToolLookup(t.Consistency)
	shown.UndoTool, shown.Lacks = t.UndoTool, t.Lacks
	shown.Approval = asks(t.Approval)
	return shown, nil
}

// asks says whether people are asked: by every rule, by some, or by none.
func asks(rules []tools.ApprovalRule) ToolApproval {
	auto := 0
	for _, r := range rules {
		if r.Outcome == tools.OutcomeAuto {
			auto++
		}
	}
	switch auto {
	case 0:
		return ToolApprovalAlways
	case len(rules):
		return ToolApprovalNever
	default:
		return ToolApprovalSometimes
	}
}
