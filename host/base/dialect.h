// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer.json are written for Oniguruma; ours are matched by PCRE2.
#ifndef BERTH_BASE_DIALECT_H
#define BERTH_BASE_DIALECT_H

#include "base/str.h"
#include "base/text.h"

// Appends a pattern that matches in PCRE2 exactly what `pattern` matches in Oniguruma. UNSUPPORTED
// names the first construct on which the two differ or may differ.
BERTH_MUST_CHECK berth_status berth_dialect_translate(berth_str pattern, berth_text *out_pattern);

#endif
