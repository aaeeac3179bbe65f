// SPDX-License-Identifier: Apache-2.0
// A directory of its own for one test, with everything in it gone at the end.
#ifndef TEST_SANDBOX_H
#define TEST_SANDBOX_H

typedef struct sandbox {
    char dir[512]; // absolute, resolved
} sandbox;

void sandbox_make(sandbox *box);
// "dir/name", written over by the eighth call from now.
const char *sandbox_path(const sandbox *box, const char *name);
// Writes a file and the directories above it; returns its path as sandbox_path does.
const char *sandbox_write(const sandbox *box, const char *name, const char *text);
void sandbox_remove(sandbox *box);

#endif
