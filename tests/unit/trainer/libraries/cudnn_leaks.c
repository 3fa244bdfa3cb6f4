/*
 * Suppression for the leak sanitizer: cuDNN's engines open cuBLASLt themselves, and leak its memory
 * if there is no device.
 */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libcublasLt.so\n";
}
