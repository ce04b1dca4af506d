// The program speaks the plugin protocol for a provider of which it knows the schema alone.
//
// OpenTofu asks it what a configuration may say, and checks the configuration against that. Whatever would need the
// provider's own code or its cloud is refused: under mock_provider nothing of it is asked for.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Where the schema is, in the form of `tofu providers schema -json`, and the address that the provider has in it.
const (
	schemaVariable = "DDPJOB_PROVIDER_SCHEMA"
	address        = "registry.opentofu.org/hashicorp/aws"
)

type attribute struct {
	Type     json.RawMessage `json:"type"`
	Required bool            `json:"required"`
	Optional bool            `json:"optional"`
	Computed bool            `json:"computed"`
}

type nestedBlock struct {
	Mode  string `json:"nesting_mode"`
	Min   int64  `json:"min_items"`
	Max   int64  `json:"max_items"`
	Block block  `json:"block"`
}

type block struct {
	Attributes map[string]attribute   `json:"attributes"`
	Blocks     map[string]nestedBlock `json:"block_types"`
}

type schema struct {
	Block block `json:"block"`
}

type provider struct {
	Provider    schema            `json:"provider"`
	Resources   map[string]schema `json:"resource_schemas"`
	DataSources map[string]schema `json:"data_source_schemas"`
}

var modes = map[string]tfprotov5.SchemaNestedBlockNestingMode{
	"single": tfprotov5.SchemaNestedBlockNestingModeSingle,
	"list":   tfprotov5.SchemaNestedBlockNestingModeList,
	"set":    tfprotov5.SchemaNestedBlockNestingModeSet,
}

func (b block) protocol() (*tfprotov5.SchemaBlock, error) {
	result := &tfprotov5.SchemaBlock{}
	for name, each := range b.Attributes {
		of, err := tftypes.ParseJSONType(each.Type) //nolint:staticcheck // the only reader of types in JSON that there is
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		result.Attributes = append(result.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: of, Required: each.Required, Optional: each.Optional, Computed: each.Computed,
		})
	}
	for name, each := range b.Blocks {
		mode, known := modes[each.Mode]
		if !known {
			return nil, fmt.Errorf("%s: unknown nesting mode %q", name, each.Mode)
		}
		inner, err := each.Block.protocol()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		result.BlockTypes = append(result.BlockTypes, &tfprotov5.SchemaNestedBlock{
			TypeName: name, Block: inner, Nesting: mode, MinItems: each.Min, MaxItems: each.Max,
		})
	}
	return result, nil
}

func protocol(of map[string]schema) (map[string]*tfprotov5.Schema, error) {
	result := make(map[string]*tfprotov5.Schema, len(of))
	for name, each := range of {
		inner, err := each.Block.protocol()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		result[name] = &tfprotov5.Schema{Block: inner}
	}
	return result, nil
}

// server answers what needs the schema alone; the embedded interface is nil, so anything else ends the program.
type server struct {
	tfprotov5.ProviderServer
	answer *tfprotov5.GetProviderSchemaResponse
}

func (s *server) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	return nil, errors.New("the schema has it all")
}

func (s *server) GetProviderSchema(
	context.Context, *tfprotov5.GetProviderSchemaRequest,
) (*tfprotov5.GetProviderSchemaResponse, error) {
	return s.answer, nil
}

func (s *server) PrepareProviderConfig(
	_ context.Context, asked *tfprotov5.PrepareProviderConfigRequest,
) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: asked.Config}, nil
}

// ConfigureProvider comes before anything that would need a cloud.
func (s *server) ConfigureProvider(
	context.Context, *tfprotov5.ConfigureProviderRequest,
) (*tfprotov5.ConfigureProviderResponse, error) {
	return &tfprotov5.ConfigureProviderResponse{Diagnostics: []*tfprotov5.Diagnostic{{
		Severity: tfprotov5.DiagnosticSeverityError,
		Summary:  "This is the provider of the tests",
		Detail:   "It knows only the schema of the real one, and provisions nothing.",
	}}}, nil
}

func (s *server) ValidateResourceTypeConfig(
	context.Context, *tfprotov5.ValidateResourceTypeConfigRequest,
) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

func (s *server) ValidateDataSourceConfig(
	context.Context, *tfprotov5.ValidateDataSourceConfigRequest,
) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

// UpgradeResourceState gives back what a mocked apply wrote: it is of this schema already.
func (s *server) UpgradeResourceState(
	_ context.Context, asked *tfprotov5.UpgradeResourceStateRequest,
) (*tfprotov5.UpgradeResourceStateResponse, error) {
	of, known := s.answer.ResourceSchemas[asked.TypeName]
	if !known {
		return nil, fmt.Errorf("%s: not in the schema", asked.TypeName)
	}
	value, err := asked.RawState.Unmarshal(of.ValueType())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", asked.TypeName, err)
	}
	upgraded, err := tfprotov5.NewDynamicValue(of.ValueType(), value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", asked.TypeName, err)
	}
	return &tfprotov5.UpgradeResourceStateResponse{UpgradedState: &upgraded}, nil
}

func (s *server) StopProvider(
	context.Context, *tfprotov5.StopProviderRequest,
) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

func serve() error {
	text, err := os.ReadFile(os.Getenv(schemaVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", schemaVariable, err)
	}
	var known provider
	if err := json.Unmarshal(text, &known); err != nil {
		return fmt.Errorf("%s: %w", schemaVariable, err)
	}
	configuration, err := known.Provider.Block.protocol()
	if err != nil {
		return err
	}
	resources, err := protocol(known.Resources)
	if err != nil {
		return err
	}
	sources, err := protocol(known.DataSources)
	if err != nil {
		return err
	}
	answer := &tfprotov5.GetProviderSchemaResponse{
		Provider:          &tfprotov5.Schema{Block: configuration},
		ResourceSchemas:   resources,
		DataSourceSchemas: sources,
	}
	return tf5server.Serve(address, func() tfprotov5.ProviderServer { return &server{answer: answer} })
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
