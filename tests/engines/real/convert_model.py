"""GGUF weights as a folder that vLLM loads. Runs in vLLM's environment: ``convert_model.py FILE FOLDER``."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.quantization_config import GgufConfig

weights, folder = Path(sys.argv[1]), Path(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(
    weights.parent,
    gguf_file=weights.name,
    dtype=torch.bfloat16,
    quantization_config=GgufConfig(dequantize=True),
)
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name).save_pretrained(folder)
