/*
 * For the leak sanitizer: cuDNN's engines open cuBLASLt for themselves and, where there is no
 * device, lose what that takes.
 */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libcublasLt.so\n";
}
