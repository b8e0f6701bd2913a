"""Serializes values of Pydantic types. Imported only if a task uses such a type.

An argument must reach the worker unchanged. Pydantic's own JSON does not promise that: it masks
secrets, omits excluded fields, adds computed ones, and may write other names than it reads. So
`write` decodes the JSON before it is stored, and falls back to writing field by field if Pydantic's
form has lost something.

A result is what FastAPI would send for the same return type, losses included.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from typing import Any, Final, Literal

import msgspec
import pydantic
from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python

from tenure.core.values.json import encode_comparable, encode_result
from tenure.core.values.misfits import KEY, Misfit, Problem
from tenure.core.values.pydantic_checks import Facts, differ, facts_of
from tenure.core.values.written_result import Written

__all__ = ["ModelForm", "form_of", "form_of_class", "structure"]

# Since Pydantic 2.11 a caller may accept names as well as aliases.
_VERSION: Final = tuple(int(part) for part in pydantic.VERSION.split(".")[:2])
_BY_NAME: Final[dict[str, Any]] = {"by_alias": True, "by_name": True} if _VERSION >= (2, 11) else {}


def form_of(kind: Any) -> ModelForm | None:
    """Return the form of a type; None if Pydantic does not know all parts of the type."""
    try:
        return ModelForm(kind)
    except (PydanticUserError, TypeError):
        return None


@lru_cache(maxsize=512)
def form_of_class(kind: type) -> ModelForm:
    """Return the form of a class, for objects of it anywhere inside other values."""
    return ModelForm(kind)


class ModelForm:
    """Serializes the values of one type with its TypeAdapter."""

    kind = msgspec.Raw
    is_plain = False
    check = None

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    @cached_property
    def _facts(self) -> Facts:
        return facts_of(self._adapter.core_schema)

    def read(self, decoded: Any, *, by_name: bool) -> Any:
        text = bytes(decoded)
        try:
            # The model's own rules first: a field with an alias only is not set by its name.
            return self._adapter.validate_json(text)
        except ValidationError as error:
            if by_name and _BY_NAME:
                with suppress(ValidationError):
                    return self._adapter.validate_json(text, **_BY_NAME)
            raise self._misfit(error) from None

    def read_plain(self, plain: Any) -> Any:
        """Read a part of another value, which msgspec has decoded already."""
        return self.read(msgspec.json.encode(plain), by_name=True)

    def write(self, value: Any) -> Any:
        """Write an argument in the first form that decodes to an equal value.

        Raises the first problem if no form does.
        """
        model = self._model(value)
        forms = [partial(self._own, model)]
        forms += [partial(_by_field, model, how) for how in _BYTES_FORMS]
        if value is not model:
            forms.append(partial(_by_field, value))  # validators may accept only the original
        problem: Exception | None = None
        # By alias first: an HTTP endpoint reads that form as well.
        for form, by_name in ((form, by_name) for by_name in (False, True) for form in forms):
            try:
                text = form()
                decoded = self.read(text, by_name=by_name)
                difference = self._differ(model, decoded)
                if difference is None:
                    return msgspec.Raw(text)
            except Exception as error:  # noqa: BLE001 - a serializer may raise anything
                problem = problem or error
            else:
                # A difference in a form that the model can read explains more than an error.
                problem = problem if isinstance(problem, _Changed) else _Changed([difference])
        assert problem is not None
        raise problem

    def difference(self, original: Any, decoded: Any) -> Problem | None:
        """Compare a part of another value with what was decoded."""
        return self._differ(self._model(original), decoded)

    def _differ(self, original: Any, decoded: Any) -> Problem | None:
        return differ(original, decoded, structure, is_untyped=self._facts.is_untyped)

    def _own(self, value: Any) -> bytes:
        return self._adapter.dump_json(value, by_alias=True, round_trip=True, warnings=False)

    def write_plainly(self, value: Any) -> Any:
        """Write a part of a result whose type is not declared."""
        return msgspec.Raw(self._adapter.dump_json(value, by_alias=True, warnings=False))

    def write_result(self, value: Any) -> Written:
        """Write a result as FastAPI would send it. Never raises: see `Written.problem`."""
        try:
            model = self._model(value, from_attributes=True)
        except Exception as error:  # noqa: BLE001 - a validator may raise anything
            return Written(_plainly(value), problem=f"it does not fit the return type: {error}")
        try:
            sent = self._adapter.dump_json(model, by_alias=True, warnings=False)
        except Exception as error:  # noqa: BLE001 - as above
            return Written(problem=str(error))
        return Written(sent, self._exact(sent, model))

    def _exact(self, sent: bytes, model: Any) -> bytes:
        """Return the result in a form that its type can read; empty if it can read what is sent.

        A model cannot read computed fields, nor names that are for output only.
        """
        try:
            decoded = self.read(sent, by_name=True)
            if decoded == model:
                return b""
        except Exception:  # noqa: BLE001 - a validator may raise anything
            decoded = _NOTHING
        for by_alias in (True, False):
            try:
                text = self._adapter.dump_json(
                    model, by_alias=by_alias, round_trip=True, warnings=False
                )
                restored = self.read(text, by_name=True)
            except Exception:  # noqa: BLE001, S112 - as above
                continue
            if decoded is _NOTHING or self._differ(decoded, restored) is not None:
                return text
        return b""

    def comparable(self, value: Any) -> Any:
        return structure(self._model(value))

    def _model(self, value: Any, **options: Any) -> Any:
        """Validate a value, such as a dict, into its type. Raises Misfit."""
        try:
            return self._adapter.validate_python(value, **options, **_BY_NAME)
        except ValidationError as error:
            raise self._misfit(error) from None

    def _misfit(self, error: ValidationError) -> Misfit:
        """Return the error without the input that Pydantic quotes, which may be a secret."""
        problems = error.errors(include_input=False, include_url=False, include_context=False)
        return Misfit(
            [
                (
                    tuple(self._step(step) for step in problem["loc"]),
                    _QUOTING.get(problem["type"], problem["msg"]),
                )
                for problem in problems
            ]
        )

    def _step(self, step: str | int) -> str | int:
        """Return a step of a path; hide keys of dicts and unknown fields, which are data."""
        return step if isinstance(step, int) or step in self._facts.names else KEY


class _Changed(Misfit):
    """A value that decodes to a different one."""


_NOTHING: Final = object()
_Bytes = Literal["utf8", "base64", "hex"]
# The encodings in which a model may read bytes (val_json_bytes), the default first.
_BYTES_FORMS: Final[tuple[_Bytes, ...]] = ("utf8", "base64", "hex")


# Replaces messages of Pydantic that quote a part of the value.
_QUOTING: Final = {
    "union_tag_invalid": "Input has a tag that is none of the expected ones",
    "uuid_parsing": "Input should be a valid UUID",
    "bytes_invalid_encoding": "Input should be valid bytes in the encoding that the model reads",
    "zoneinfo_str": "Input should be the name of a time zone",
    "byte_size_unit": "Input should be a size with a known unit",
    "import_error": "Input should be the path of something that can be imported",
}


def _plainly(value: Any) -> bytes:
    """Return a value that does not fit its type as JSON, secrets masked; empty if it has none."""
    try:
        return encode_result(value)
    except Exception:  # noqa: BLE001 - it has none
        return b""


def _by_field(value: Any, how: _Bytes = "utf8") -> bytes:
    return encode_comparable(structure(value, how))


def structure(value: Any, how: _Bytes = "utf8") -> Any:
    """Return a value as dicts, lists and leaves, under the names by which its fields are read.

    Nothing is masked or omitted. Sets are sorted, so that equal values have equal structures.
    """
    if isinstance(value, BaseModel):
        return _model_structure(value, how)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        named = {name: getattr(value, name, None) for name in names}
        config = getattr(value, "__pydantic_config__", {})
        return _fields(getattr(value, "__pydantic_fields__", {}), named, config, how)
    if isinstance(value, Mapping):
        return {name: structure(part, how) for name, part in value.items()}
    if isinstance(value, list | tuple | deque):
        return [structure(part, how) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((structure(part, how) for part in value), key=encode_comparable)
    return _leaf(value, how)


def _model_structure(value: BaseModel, how: _Bytes) -> Any:
    if isinstance(value, RootModel):
        return structure(value.root, how)
    named = _fields(type(value).model_fields, value.__dict__, value.model_config, how)
    extra = value.model_extra or {}
    return named | {name: structure(part, how) for name, part in extra.items()}


def _leaf(value: Any, how: _Bytes) -> Any:
    """Return a single value as Pydantic reads it from JSON."""
    if (reveal := getattr(value, "get_secret_value", None)) is not None:
        return structure(reveal(), how)
    try:
        return to_jsonable_python(value, bytes_mode=how)
    except ValueError:  # such as bytes that are not text
        return value


def _fields(
    fields: Mapping[str, Any],
    values: Mapping[str, Any],
    config: Mapping[str, Any],
    how: _Bytes,
) -> dict[str, Any]:
    placed: dict[str, Any] = {}
    has_aliases = config.get("validate_by_alias", True)
    for name in fields or values:
        if name in values:
            alias = getattr(fields.get(name), "validation_alias", None) if has_aliases else None
            _place(placed, _path(alias, name), structure(values[name], how))
    return placed


def _path(alias: Any, name: str) -> Sequence[str | int]:
    """Return the path at which a model reads a field."""
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    if isinstance(alias, AliasPath):
        return alias.path
    return (alias or name,)


def _place(placed: dict[str, Any], path: Sequence[str | int], part: Any) -> None:
    """Put a part at the end of a path. Lists grow as needed."""
    *way, last = path
    at: Any = placed
    for step, following in zip(way, path[1:], strict=True):
        _make_room(at, step)
        if at[step] is None:
            at[step] = [] if isinstance(following, int) else {}
        at = at[step]
    _make_room(at, last)
    at[last] = part


def _make_room(at: Any, step: Any) -> None:
    if isinstance(at, list):
        at += [None] * (step + 1 - len(at))
    else:
        at.setdefault(step)
