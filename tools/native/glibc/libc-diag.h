#pragma once
#define DIAG_PUSH_NEEDS_COMMENT
#define DIAG_POP_NEEDS_COMMENT
#define DIAG_IGNORE_NEEDS_COMMENT(version, what)
#define DIAG_IGNORE_Os_NEEDS_COMMENT(version, what)
#define __GNUC_PREREQ(a, b) 1
