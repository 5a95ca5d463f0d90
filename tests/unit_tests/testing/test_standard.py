"""LangChain's own tests for chat models, run on the scripted model."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_tests.unit_tests import ChatModelUnitTests

from langgraph_flash.testing import ScriptedChatModel, __all__, call, says


class TestScriptedChatModel(ChatModelUnitTests):
    # Not serialisable, because a script may hold functions: test_serdes skips itself. It reads nothing from the
    # environment: test_init_from_env skips itself.
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ScriptedChatModel

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"script": [says("Let me see.", call("my_adder_tool", a=1, b=2)), "Three."], "loop": True}

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "another-script"


def test_the_names_of_the_package_are_sorted() -> None:
    assert __all__ == sorted(__all__)
