#include "loaderd/crash_marker.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { STACK_SIZE = 32 << 10, SIGNALS = 5 };

struct current_sample {
	volatile bool active;
	uint8_t uuid[16];
	uint64_t sample;
	_Alignas(16) char stack[STACK_SIZE];
};

/* Initial-exec TLS: the signal handler must not trigger lazy allocation of a TLS block. */
static _Thread_local struct current_sample decoding __attribute__((tls_model("initial-exec")));
static struct crash_marker *marker_at;
static const int numbers[SIGNALS] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
static struct sigaction before[SIGNALS];

void crash_marker_note(int signal_number)
{
	uint32_t expected = 0;
	if (!decoding.active || !marker_at ||
	    !atomic_compare_exchange_strong(&marker_at->noted, &expected, 1))
		return;
	marker_at->signal = (uint32_t)signal_number;
	memcpy(marker_at->uuid, decoding.uuid, sizeof(marker_at->uuid));
	marker_at->sample = decoding.sample;
	atomic_store(&marker_at->noted, 2); /* complete */
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
	/*
	 * Ignore a signal that a process sent, unless abort() sent it: the sample is not at fault.
	 */
	bool sent = info->si_code <= 0;
	if (!sent || signal_number == SIGABRT)
		crash_marker_note(signal_number);
	for (unsigned i = 0; i < SIGNALS; i++)
		if (numbers[i] == signal_number && (before[i].sa_flags & SA_SIGINFO))
			before[i].sa_sigaction(signal_number, info, context);
	/*
	 * SA_RESETHAND has restored the default action: returning repeats the faulting access,
	 * which ends the process. A sent signal must be raised again.
	 */
	if (sent)
		raise(signal_number);
}

int crash_marker_install(struct crash_marker *marker)
{
	struct sigaction action = {.sa_sigaction = on_fault,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
	sigemptyset(&action.sa_mask);
	marker_at = marker;
	for (unsigned i = 0; i < SIGNALS; i++) {
		/*
		 * SIGBUS is handled by sigbus_guard, which recovers where it can and calls
		 * crash_marker_note() otherwise.
		 */
		if (numbers[i] != SIGBUS && sigaction(numbers[i], &action, &before[i]) < 0)
			return -errno;
	}
	return 0;
}

void crash_marker_thread(void)
{
	const stack_t stack = {.ss_sp = decoding.stack, .ss_size = STACK_SIZE};
	stack_t there;
	/* Keep an alternate stack that a sanitizer has installed. */
	if (sigaltstack(NULL, &there) == 0 && (there.ss_flags & SS_DISABLE))
		(void)sigaltstack(&stack, NULL);
}

void crash_marker_begin(const uint8_t uuid[16], uint64_t sample)
{
	memcpy(decoding.uuid, uuid, sizeof(decoding.uuid));
	decoding.sample = sample;
	atomic_signal_fence(memory_order_seq_cst);
	decoding.active = true;
	atomic_signal_fence(memory_order_seq_cst);
}

void crash_marker_end(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	decoding.active = false;
	atomic_signal_fence(memory_order_seq_cst);
}
