"""Settings that pydantic checks; what it refuses becomes this package's error with field, value and limit."""

from collections.abc import Iterator, Mapping
from reprlib import repr as short_repr
from typing import Annotated, ClassVar, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from langchain_ctxbudget.errors import InvalidSettingsError, meant


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must be a non-empty string")
    return text


NonNegative: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
Positive: TypeAlias = Annotated[int, Field(strict=True, ge=1)]
Share: TypeAlias = Annotated[float, Field(strict=True, gt=0, le=1)]
ShareOrNone: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=1)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Text: TypeAlias = Annotated[str, Field(strict=True), AfterValidator(_not_blank)]


class Parameters(BaseModel):
    """A frozen value whose fields are checked when it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)
    setting: ClassVar[str] = ""
    """The setting that it is a value of, for errors."""

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidSettingsError("; ".join(_problems(error, type(self)))) from None

    @classmethod
    def of(cls, value: object) -> Self:
        """Returns the value itself, or makes one from a mapping of its fields."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise InvalidSettingsError(f"{cls.__name__} is made from a mapping of fields, not {type(value).__name__}")
        return cls(**{str(name): given for name, given in value.items()})


def _problems(error: ValidationError, kind: type[Parameters]) -> Iterator[str]:
    """Words each problem as `field must be ..., not value`."""
    for problem in error.errors(include_url=False):
        parts = (part for part in (kind.setting, *problem["loc"]) if part != "")
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
        said = problem["msg"].removeprefix("Value error, ").replace("Input should", "must")
        if problem["type"] == "extra_forbidden":
            near = meant(str(problem["loc"][-1]), kind.model_fields)
            said = f"is no setting of {kind.__name__}{near}; known are {', '.join(sorted(kind.model_fields))}"
        elif said.startswith("must") and ", not " not in said:
            said = f"{said}, not {short_repr(problem['input'])}"
        yield said if said.startswith(place) else f"{place}{' ' if said.startswith(('must', 'is ')) else ': '}{said}"
