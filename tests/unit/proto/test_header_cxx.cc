#include "tests/unit/proto/test_header.c"
