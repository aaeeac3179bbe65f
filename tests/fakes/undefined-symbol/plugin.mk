# SPDX-License-Identifier: Apache-2.0
# The missing symbol is the point of this fake.
undefined-symbol_LIBS := -Wl,-z,undefs
