/* Function tables of cuDNN and cuBLASLt. Both libraries are loaded at run time (load.h). */
#pragma once

#include <cublasLt.h>
#include <cudnn.h>
#include <stdbool.h>

#define CUDNN_LIBRARY(X)                                                                           \
	X(cudnnGetVersion)                                                                         \
	X(cudnnGetErrorString)                                                                     \
	X(cudnnGetLastErrorString)                                                                 \
	X(cudnnCreate)                                                                             \
	X(cudnnDestroy)                                                                            \
	X(cudnnSetStream)                                                                          \
	X(cudnnBackendCreateDescriptor)                                                            \
	X(cudnnBackendDestroyDescriptor)                                                           \
	X(cudnnBackendSetAttribute)                                                                \
	X(cudnnBackendGetAttribute)                                                                \
	X(cudnnBackendFinalize)                                                                    \
	X(cudnnBackendExecute)

#define CUBLASLT_LIBRARY(X)                                                                        \
	X(cublasLtGetVersion)                                                                      \
	X(cublasLtGetStatusString)                                                                 \
	X(cublasLtCreate)                                                                          \
	X(cublasLtDestroy)                                                                         \
	X(cublasLtMatmul)                                                                          \
	X(cublasLtMatmulAlgoGetHeuristic)                                                          \
	X(cublasLtMatmulDescCreate)                                                                \
	X(cublasLtMatmulDescDestroy)                                                               \
	X(cublasLtMatmulDescSetAttribute)                                                          \
	X(cublasLtMatrixLayoutCreate)                                                              \
	X(cublasLtMatrixLayoutDestroy)                                                             \
	X(cublasLtMatmulPreferenceCreate)                                                          \
	X(cublasLtMatmulPreferenceDestroy)                                                         \
	X(cublasLtMatmulPreferenceSetAttribute)

/* Declares one member per function, with the function's name and type. */
#define LIBRARY_MEMBER(name) __typeof__(name) *name;

struct cudnn_library {
	CUDNN_LIBRARY(LIBRARY_MEMBER)
};

struct cublaslt_library {
	CUBLASLT_LIBRARY(LIBRARY_MEMBER)
};

/*
 * Load the functions. -ENODEV if the library is missing or too old, see engines_open(). error has
 * DEVICE_ERROR_MAX bytes.
 */
int cudnn_library_load(struct cudnn_library *ret_library, char *error);
int cublaslt_library_load(struct cublaslt_library *ret_library, char *error);
/*
 * If there is no driver, loads `path` so that cuDNN uses it as libcuda.so.1. Returns true if the
 * driver or its stand-in is loaded. Call before cudnn_library_load().
 */
bool driver_load(const char *path);
