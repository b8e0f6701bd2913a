"""How values of Pydantic's types are written and read. Imported only where a task uses them.

An argument must arrive in the worker as it was given. Pydantic's own JSON does not promise that: it
masks secrets, leaves out excluded fields, adds computed ones and may write other names than it
reads. So an argument is read back before it is stored, and written field by field if Pydantic's own
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

from tenure.core.values.forms import Written
from tenure.core.values.json import encode_comparable, encode_result
from tenure.core.values.misfits import KEY, Misfit, Problem
from tenure.core.values.pydantic_checks import Facts, differ, facts_of

__all__ = ["ModelForm", "form_of", "form_of_class", "structure"]

# Since Pydantic 2.11 a caller may ask for names as well as aliases.
_VERSION: Final = tuple(int(part) for part in pydantic.VERSION.split(".")[:2])
_BY_NAME: Final[dict[str, Any]] = {"by_alias": True, "by_name": True} if _VERSION >= (2, 11) else {}


def form_of(kind: Any) -> ModelForm | None:
    """Return how values of a type are written; None if Pydantic does not know all of its parts."""
    try:
        return ModelForm(kind)
    except (PydanticUserError, TypeError):
        return None


@lru_cache(maxsize=512)
def form_of_class(kind: type) -> ModelForm:
    """Return how objects of one class are written, wherever they are."""
    return ModelForm(kind)


class ModelForm:
    """Values of one type, by its TypeAdapter."""

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
            # The model's own rules first: a client must not reach by its name a field that is
            # only to be set by its alias.
            return self._adapter.validate_json(text)
        except ValidationError as error:
            if by_name and _BY_NAME:
                with suppress(ValidationError):
                    return self._adapter.validate_json(text, **_BY_NAME)
            raise self._misfit(error) from None

    def read_plain(self, plain: Any) -> Any:
        """Read what is JSON already, as a part of something else."""
        return self.read(msgspec.json.encode(plain), by_name=True)

    def write(self, value: Any) -> Any:
        """Write an argument: the first form that reads back as the same."""
        wanted = self._model(value)
        forms = [partial(self._own, wanted)]
        forms += [partial(_by_field, wanted, how) for how in _BYTES_FORMS]
        if value is not wanted:
            forms.append(partial(_by_field, value))  # validators may accept nothing else
        problem: Exception | None = None
        # By the model's own rules if possible: then it is also what a server of HTTP reads.
        for form, by_name in ((form, by_name) for by_name in (False, True) for form in forms):
            try:
                text = form()
                found = self.read(text, by_name=by_name)
                difference = self._differ(wanted, found)
                if difference is None:
                    return msgspec.Raw(text)
            except Exception as error:  # noqa: BLE001 - a serializer may raise anything
                problem = problem or error
            else:
                # The first difference is in the form that the model reads, as far as that goes.
                problem = problem if isinstance(problem, _Changed) else _Changed([difference])
        assert problem is not None
        raise problem

    def difference(self, given: Any, found: Any) -> Problem | None:
        """Compare a part of something else with what was read back."""
        return self._differ(self._model(given), found)

    def _differ(self, given: Any, found: Any) -> Problem | None:
        return differ(given, found, structure, is_untyped=self._facts.is_untyped)

    def _own(self, value: Any) -> bytes:
        return self._adapter.dump_json(value, by_alias=True, round_trip=True, warnings=False)

    def write_plainly(self, value: Any) -> Any:
        """Write a part of a result, where nothing is said about its type."""
        return msgspec.Raw(self._adapter.dump_json(value, by_alias=True, warnings=False))

    def write_result(self, value: Any) -> Written:
        """Write a result as FastAPI would send it; see `Written`."""
        try:
            wanted = self._model(value, from_attributes=True)
        except Exception as error:  # noqa: BLE001 - a validator may raise anything
            return Written(_plainly(value), problem=f"it does not fit the return type: {error}")
        try:
            sent = self._adapter.dump_json(wanted, by_alias=True, warnings=False)
        except Exception as error:  # noqa: BLE001 - as above
            return Written(problem=str(error))
        return Written(sent, self._exact(sent, wanted))

    def _exact(self, sent: bytes, wanted: Any) -> bytes:
        """Return the result in a form that its type reads, if what is sent is not in that form.

        Computed fields, and names for output only, are not read by a model.
        """
        try:
            found = self.read(sent, by_name=True)
            if found == wanted:
                return b""
        except Exception:  # noqa: BLE001 - a validator may raise anything
            found = _NOTHING
        for by_alias in (True, False):
            try:
                text = self._adapter.dump_json(
                    wanted, by_alias=by_alias, round_trip=True, warnings=False
                )
                back = self.read(text, by_name=True)
            except Exception:  # noqa: BLE001, S112 - as above
                continue
            if found is _NOTHING or self._differ(found, back) is not None:
                return text
        return b""

    def comparable(self, value: Any) -> Any:
        return structure(self._model(value))

    def _model(self, value: Any, **options: Any) -> Any:
        """Return what a program gives, a dict for example, as its type has it; raise Misfit."""
        try:
            return self._adapter.validate_python(value, **options, **_BY_NAME)
        except ValidationError as error:
            raise self._misfit(error) from None

    def _misfit(self, error: ValidationError) -> Misfit:
        """Return what is wrong and where, without what was given: that may be a secret."""
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
        """Return a step to a part. The key of a dict, or of a field too many, is data."""
        return step if isinstance(step, int) or step in self._facts.names else KEY


class _Changed(Misfit):
    """A value that is another one after it was read back."""


_NOTHING: Final = object()
_Bytes = Literal["utf8", "base64", "hex"]
# How a model may read bytes (val_json_bytes), the default first.
_BYTES_FORMS: Final[tuple[_Bytes, ...]] = ("utf8", "base64", "hex")


# What Pydantic says with a part of the value in it.
_QUOTING: Final = {
    "union_tag_invalid": "Input has a tag that is none of the expected ones",
    "uuid_parsing": "Input should be a valid UUID",
    "bytes_invalid_encoding": "Input should be valid bytes in the encoding that the model reads",
    "zoneinfo_str": "Input should be the name of a time zone",
    "byte_size_unit": "Input should be a size with a known unit",
    "import_error": "Input should be the path of something that can be imported",
}


def _plainly(value: Any) -> bytes:
    """Return what does not fit its type as JSON, if it has a form. Secrets are masked."""
    try:
        return encode_result(value)
    except Exception:  # noqa: BLE001 - it has none
        return b""


def _by_field(value: Any, how: _Bytes = "utf8") -> bytes:
    return encode_comparable(structure(value, how))


def structure(value: Any, how: _Bytes = "utf8") -> Any:
    """Return a value as dicts, lists and leaves, by the names under which its fields are read.

    Nothing is masked or left out, and what has no order gets one.
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
    known: Mapping[str, Any],
    values: Mapping[str, Any],
    config: Mapping[str, Any],
    how: _Bytes,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    has_aliases = config.get("validate_by_alias", True)
    for name in known or values:
        if name in values:
            alias = getattr(known.get(name), "validation_alias", None) if has_aliases else None
            _place(found, _path(alias, name), structure(values[name], how))
    return found


def _path(alias: Any, name: str) -> Sequence[str | int]:
    """Return where a model looks for a field."""
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    if isinstance(alias, AliasPath):
        return alias.path
    return (alias or name,)


def _place(found: dict[str, Any], path: Sequence[str | int], part: Any) -> None:
    """Put a part where a path leads; lists grow as far as that takes."""
    *way, last = path
    at: Any = found
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
