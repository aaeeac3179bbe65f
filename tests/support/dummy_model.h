// SPDX-License-Identifier: Apache-2.0
// A checkpoint of model-dummy's architecture: the weights of tests/data/models/llama under a
// config.json in the words of DummyForCausalLM. It computes what llama computes, so llama's
// golden.json is the reference for both.
#ifndef TEST_DUMMY_MODEL_H
#define TEST_DUMMY_MODEL_H

#include "support/sandbox.h"

#define LLAMA        "tests/data/models/llama"
#define LLAMA_GOLDEN (LLAMA "/golden.json")

// Makes the checkpoint in the sandbox; returns its directory as sandbox_path does.
const char *dummy_model_write(const sandbox *box);

#endif
