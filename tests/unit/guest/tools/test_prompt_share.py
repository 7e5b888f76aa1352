"""What a model is told of the tools."""

from tool_snapshot import all_tools

from guest.agent.toolset import definition


def test_a_model_is_told_of_each_tool_in_a_line_without_bounds() -> None:
    for each in all_tools():
        told = definition(each)
        assert len(told.description or "") <= 110
        assert set(told.parameters_json_schema) <= {"type", "properties", "required"}
        for argument in told.parameters_json_schema["properties"].values():
            assert set(argument) <= {"type", "enum", "items", "description"}
