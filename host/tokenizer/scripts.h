// SPDX-License-Identifier: Apache-2.0
// The script that a character is written in.
#ifndef BERTH_TOKENIZER_SCRIPTS_H
#define BERTH_TOKENIZER_SCRIPTS_H

#include <stdint.h>

// A number that characters of one script have in common; 0: of none, which goes with any.
unsigned berth_script_of(uint32_t code);

#endif
