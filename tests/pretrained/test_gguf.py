"""GGUF files: against the package `gguf`, and files that are not whole."""

import struct
from pathlib import Path

import gguf as gguf_format
import numpy as np
import pytest
import torch

from companion.artifacts import SMOLLM2
from companion.pretrained import gguf

VALUES = {
    "add_uint8": 255,
    "add_int8": -128,
    "add_uint16": 65_535,
    "add_int16": -32_768,
    "add_uint32": 2**32 - 1,
    "add_int32": -(2**31),
    "add_uint64": 2**64 - 1,
    "add_int64": -(2**63),
    "add_float32": 0.1,
    "add_float64": 0.1,
    "add_bool": True,
    "add_string": "grün\n",
}
LISTS = [[1, -2, 3], [0.5, 0.25], [True, False], ["", "a", "ü" * 300]]


def write(path: Path, tensors: dict, alignment: int = 32) -> Path:
    """A file with a value of every type, and these tensors: (array, its type)."""
    writer = gguf_format.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    for add, value in VALUES.items():
        getattr(writer, add)(f"one.{add}", value)
    for i, values in enumerate(LISTS):
        writer.add_array(f"list.{i}", values)
    for name, (array, stored_type) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=stored_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def some_tensors() -> dict:
    """Tensors of one to three axes, plain and in blocks, longer than a piece."""
    types = gguf_format.GGMLQuantizationType
    draw = np.random.default_rng(0)
    tensors = {}
    for stored_type in (types.Q4_1, types.Q8_0, types.Q5_0, types.F16, types.F32):
        for i, shape in enumerate([(64,), (3, 5, 96), (4, 32 * gguf.N_BLOCKS // 3)]):
            shape = (*shape[:-1], shape[-1] // 32 * 32)
            array = draw.standard_normal(shape, dtype=np.float32)
            stored = gguf_format.quantize(array, stored_type)
            tensors[f"{stored_type.name}.{i}"] = (stored, stored_type)
    return tensors


def assert_same_as_the_package(path: Path) -> gguf_format.GGUFReader:
    """The header, and where each tensor lies."""
    reader = gguf_format.GGUFReader(path)
    header, tensors = gguf.open_gguf(path)
    fields = {k: x for k, x in reader.fields.items() if not k.startswith("GGUF.")}
    assert [*header] == [*fields]
    for name, field in fields.items():
        if len(field.data) < 1000:  # the package takes seconds for a vocabulary
            assert header[name] == field.contents()
            assert type(header[name]) is type(field.contents())
    assert [*tensors] == [stored.name for stored in reader.tensors]
    for stored in reader.tensors:
        own = tensors[stored.name]
        assert own.start == stored.data_offset
        assert own.shape[::-1] == tuple(stored.shape)
        assert own.stored_type == stored.tensor_type
    return reader


@pytest.mark.parametrize("alignment", [32, 256])
def test_every_type_of_value_and_tensor_is_read_as_by_the_package(tmp_path, alignment):
    path = write(tmp_path / "all", some_tensors(), alignment)
    reader = assert_same_as_the_package(path)
    _, tensors = gguf.read_gguf(path)
    for stored in reader.tensors:
        floats = gguf_format.dequantize(stored.data, stored.tensor_type)
        assert tensors[stored.name].dtype == torch.float32
        assert np.array_equal(tensors[stored.name].numpy(), floats), stored.name


def test_the_published_file_is_read_as_by_the_package():
    assert_same_as_the_package(SMOLLM2.path)


def test_a_file_that_ends_anywhere_is_refused(tmp_path):
    tensors = {"x": (np.ones(64, np.float32), None)}
    path = write(tmp_path / "whole", tensors)
    whole = path.read_bytes()
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="can't be read as a whole GGUF file"):
            gguf.read_gguf(path)


def test_what_a_damaged_file_says_is_refused_by_name(tmp_path):
    path = write(tmp_path / "whole", {"xyz": (np.ones(64, np.float32), None)})
    whole = path.read_bytes()
    place = whole.index(b"xyz") + 3  # then: axes, sizes, type and offset
    for start, wrong, words in (
        (0, b"GGML", "it doesn't begin with GGUF"),
        (4, struct.pack("<I", 1), "version 1, and not 2 or 3"),
        (4, struct.pack(">I", 3), "version 50331648"),
        (8, struct.pack("<Q", 2**60), ""),
        (16, struct.pack("<Q", 2**60), ""),
        (place + 4, struct.pack("<Q", 2**62), "xyz ends at byte"),
        (place + 12, struct.pack("<I", 99), "99 is not a valid"),
        (place + 12, struct.pack("<I", 10), "xyz is (64,), in blocks of 256"),
        (place + 16, struct.pack("<Q", 32), "xyz ends at byte"),
        (whole.index(b"one.add_int8"), b"one.add_bool", "it says one.add_bool twice"),
        (whole.index(b"list.0") + 10, struct.pack("<I", 9), "a list of lists"),
        (whole.index(b"list.0") + 14, struct.pack("<Q", 2**61), ""),
        (whole.index(b"general.alignment") + 21, struct.pack("<I", 33), "power of two"),
    ):
        changed = bytearray(whole)
        changed[start : start + len(wrong)] = wrong
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="read as a whole GGUF file") as refused:
            gguf.read_gguf(path)
        assert words in str(refused.value)


@pytest.mark.parametrize("offset", [0, 64, 127, 160])
def test_tensors_that_overlap_or_leave_a_gap_are_refused(tmp_path, offset):
    """The second would be read from other bytes, which are numbers as well."""
    numbers = np.ones(32, np.float32)
    path = write(tmp_path / "whole", {x: (numbers, None) for x in ("first", "second")})
    changed = bytearray(path.read_bytes() + bytes(64))
    place = changed.index(b"second") + 6 + 4 + 8 + 4
    assert struct.unpack_from("<Q", changed, place) == (128,)
    struct.pack_into("<Q", changed, place, offset)
    path.write_bytes(changed)
    with pytest.raises(ValueError, match="second begins at byte"):
        gguf.read_gguf(path)


def test_integers_have_no_way_to_floats(tmp_path):
    tensors = {"counts": (np.arange(4, dtype=np.int32), None)}
    path = write(tmp_path / "counts", tensors)
    with pytest.raises(ValueError, match="counts is I32, no floats"):
        gguf.read_gguf(path)


def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path):
    path = write(tmp_path / "whole", {"x": (np.ones(64, np.float32), None)})
    _, stored = gguf.open_gguf(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="whole has changed: x is cut off"):
        stored["x"].floats()
