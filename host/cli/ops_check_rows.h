// SPDX-License-Identifier: Apache-2.0
// Private to cli/: the hooks that rows of ops_check_rows.c name, one file per family.
#ifndef BERTH_CLI_OPS_CHECK_ROWS_H
#define BERTH_CLI_OPS_CHECK_ROWS_H

#include "cli/ops_check.h"

#endif
