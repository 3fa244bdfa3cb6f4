#include "tests/unit/proto/client/test_header.c"
