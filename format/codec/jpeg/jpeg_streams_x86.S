/*
 * int jpeg_lanes_ORDER_N(struct jpeg_lane lanes[N]) for ORDER zigzag and natural, each also with
 * the suffix _checked, and N from 1 to 4. Equivalent to jpeg_lanes_c in jpeg_streams.c: read that
 * first. The per-symbol state of each lane stays in registers: bits, left-aligned (B), cursor (P)
 * and state (S); rax, rcx and rdx are scratch. Compilers spill half of these.
 */
#include "format/codec/jpeg/jpeg_streams_x86.h"

	.text

/* Fields of lane i. */
#define NEXT(i)   JPEG_LANE_SIZE * i + JPEG_LANE_NEXT(%rsp)
#define USED(i)   JPEG_LANE_SIZE * i + JPEG_LANE_USED(%rsp)
#define CURSOR(i)  JPEG_LANE_SIZE * i + JPEG_LANE_CURSOR(%rsp)
#define STATE(i)  JPEG_LANE_SIZE * i + JPEG_LANE_STATE(%rsp)
#define FINISH(i) JPEG_LANE_SIZE * i + JPEG_LANE_FINISH(%rsp)
#define LIMIT(i)  JPEG_LANE_SIZE * i + JPEG_LANE_LIMIT(%rsp)
#define PHASE(i)  JPEG_LANE_SIZE * i + JPEG_LANE_PHASE(%rsp)
/* Stack frame: lanes, jpeg_values, jpeg_moves, caller-saved registers, loads left, the argument. */
#define VALUES    (4 * JPEG_LANE_SIZE)
#define MOVES     (VALUES + JPEG_LANE_VALUES_SIZE)
#define SAVED(i)  MOVES + 128 + 8 * i(%rsp)
#define LOADS     SAVED(6)
#define GIVEN     SAVED(7)
#define FRAME     (MOVES + 128 + 8 * 8)

/* number, B, its low 32 bits, P, its low 32 bits, its low byte, S */
#define LANE0 0, %rbx, %ebx, %rbp, %ebp, %bpl, %r12
#define LANE1 1, %r13, %r13d, %r14, %r14d, %r14b, %r15
#define LANE2 2, %rsi, %esi, %rdi, %edi, %dil, %r8
#define LANE3 3, %r9, %r9d, %r10, %r10d, %r10b, %r11

/* Advances past the used bytes and loads the next bits. */
.macro refill i, B, B32, P, P32, P8, S
	movzbl	USED(\i), %ecx
	movl	%ecx, %eax
	shrl	$3, %eax
	addq	NEXT(\i), %rax
	movq	%rax, NEXT(\i)
	movq	(%rax), \B
	bswapq	\B
	andl	$7, %ecx
	movb	%cl, USED(\i)
	shlq	%cl, \B
.endm

/* Looks up the entry (ecx) and its advance (edx) at index rdx. */
.macro find
	movl	(%rax,%rdx,4), %ecx
	movzbl	1(%rax,%rdx,4), %edx
.endm

/* Applies the entry. rax holds the previous cursor. */
.macro act i, B, B32, P, P32, P8, S
	movq	\P, %rax
	orq	$127, \P
	rolq	%cl, \B
	addb	%cl, USED(\i)
	shrl	$17, %ecx			/* carry set if JPEG_LEAVES is set */
	cmovncq	%rax, \P
	cmovcq	JPEG_STATE_NEXT(\S), \S
	addq	%rdx, \P
	movl	\B32, %edx
	andl	%ecx, %edx
	addl	%edx, %ecx
	movzwl	VALUES(%rsp,%rcx,2), %ecx
	.if NATURAL
	movl	\P32, %edx
	andl	$127, %edx
	movsbq	MOVES(%rsp,%rdx), %rdx
	movw	%cx, -2(\P,%rdx)
	.else
	movw	%cx, -2(\P)
	.endif
.endm

/* Decodes one symbol; rare cases jump to labels derived from `label`. */
.macro step label, i, B, B32, P, P32, P8, S
	movq	\B, %rdx
	shrq	$64 - JPEG_LANE_LOOKUP_BITS, %rdx
	movq	JPEG_STATE_LOOKUP(\S), %rax
	find
	testl	%ecx, %ecx
	jz	.Llong_\label
	act	\i, \B, \B32, \P, \P32, \P8, \S
	testb	$127, \P8
	jz	.Lend_\label
.Lback_\label:
.endm

.macro rare label, i, B, B32, P, P32, P8, S
	/* The block ended before the next DC code was decoded: see jpeg_streams.c. */
.Lend_\label:
	orq	$127, %rax
	subq	%rax, \P
	cmpq	$1, \P
	movq	%rax, \P
	jne	0f
	movq	JPEG_STATE_NEXT(\S), \S
	movq	JPEG_STATE_ENTER(\S), \S
	jmp	.Lback_\label
0:	movq	JPEG_STATE_ENTER(\S), \S
	jmp	.Lback_\label

	/* The code is not in the lookup, or code and value are long. */
.Llong_\label:
	refill	\i, \B, \B32, \P, \P32, \P8, \S
	movq	\B, %rdx
	shrq	$48, %rdx
	subl	$(1 << 16) - JPEG_LANE_TOP_SIZE, %edx
	jb	1f
	movq	JPEG_STATE_TOP(\S), %rax
	find
	testl	%ecx, %ecx
	jz	1f
	act	\i, \B, \B32, \P, \P32, \P8, \S
	movq	%rax, %rdx
	refill	\i, \B, \B32, \P, \P32, \P8, \S
	movq	%rdx, %rax
	testb	$127, \P8
	jz	.Lend_\label
	jmp	.Lback_\label
1:	movq	\P, CURSOR(\i)
	movq	\S, STATE(\i)
	leaq	JPEG_LANE_SIZE * \i(%rsp), %rdx
	movl	$NATURAL, %eax
	call	.Lcall
	movq	CURSOR(\i), \P
	movq	STATE(\i), \S
	refill	\i, \B, \B32, \P, \P32, \P8, \S
	jmp	.Lback_\label
.endm

.macro each lanes, what
	\what LANE0
	.if \lanes > 1
	\what LANE1
	.endif
	.if \lanes > 2
	\what LANE2
	.endif
	.if \lanes > 3
	\what LANE3
	.endif
.endm

/* what: step or rare. of: order and lanes. n: number of the symbol within a load. */
.macro symbols what, of, lanes, n
	\what \of\n\()0, LANE0
	.if \lanes > 1
	\what \of\n\()1, LANE1
	.endif
	.if \lanes > 2
	\what \of\n\()2, LANE2
	.endif
	.if \lanes > 3
	\what \of\n\()3, LANE3
	.endif
.endm

.macro take i, B, B32, P, P32, P8, S
	movq	CURSOR(\i), \P
	movq	STATE(\i), \S
.endm

.macro give i, B, B32, P, P32, P8, S
	movq	\P, CURSOR(\i)
	movq	\S, STATE(\i)
.endm

/* Jumps if the lane is finished, past its limit, or out of step. */
.macro look i, B, B32, P, P32, P8, S
	cmpq	FINISH(\i), \P
	jae	2f
	movq	NEXT(\i), %rax
	cmpq	LIMIT(\i), %rax
	ja	2f
	.if CHECKED
	movq	\P, %rax
	shrq	$7, %rax
	subl	JPEG_STATE_NUMBER(\S), %eax
	subl	PHASE(\i), %eax
	testb	$15, %al
	jnz	2f
	.endif
.endm

/* size: a multiple of 16 bytes */
.macro copy from, to_offset, to, size
	movl	$\size, %ecx
0:	movups	-16(\from,%rcx), %xmm0
	movups	%xmm0, \to_offset-16(\to,%rcx)
	subl	$16, %ecx
	jnz	0b
.endm

.macro runner order, lanes
	.globl	jpeg_lanes_\order\()_\lanes
	.hidden	jpeg_lanes_\order\()_\lanes
	.type	jpeg_lanes_\order\()_\lanes, @function
	.p2align 6
jpeg_lanes_\order\()_\lanes:
	.cfi_startproc
	.irp	register, %rbx, %rbp, %r12, %r13, %r14, %r15
	pushq	\register
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset \register, 0
	.endr
	subq	$FRAME, %rsp
	.cfi_adjust_cfa_offset FRAME
	movq	%rdi, GIVEN
	copy	%rdi, 0, %rsp, (JPEG_LANE_SIZE * \lanes)
	leaq	jpeg_values(%rip), %rax
	copy	%rax, VALUES, %rsp, JPEG_LANE_VALUES_SIZE
	.if NATURAL
	leaq	jpeg_moves(%rip), %rax
	copy	%rax, MOVES, %rsp, 128
	.endif
	each	\lanes, take
1:	movl	$JPEG_LANE_LOADS, LOADS
	.p2align 6
.Lload_\order\lanes:
	each	\lanes, refill
	symbols	step, \order\lanes, \lanes, a
	symbols	step, \order\lanes, \lanes, b
	symbols	step, \order\lanes, \lanes, c
	decl	LOADS
	jnz	.Lload_\order\lanes
	each	\lanes, look
	jmp	1b
2:	each	\lanes, give
	movq	GIVEN, %rdx
	copy	%rsp, 0, %rdx, (JPEG_LANE_SIZE * \lanes)
	xorl	%eax, %eax
	jmp	.Lout
	symbols	rare, \order\lanes, \lanes, a
	symbols	rare, \order\lanes, \lanes, b
	symbols	rare, \order\lanes, \lanes, c
	.cfi_endproc
	.size	jpeg_lanes_\order\()_\lanes, . - jpeg_lanes_\order\()_\lanes
.endm

.macro runners order
	runner	\order, 4
	runner	\order, 3
	runner	\order, 2
	runner	\order, 1
.endm

	.set	CHECKED, 0
	.set	NATURAL, 0
	runners	zigzag
	.set	NATURAL, 1
	runners	natural
	.set	CHECKED, 1
	runners	natural_checked
	.set	NATURAL, 0
	runners	zigzag_checked

/*
 * Calls jpeg_lane_symbol(rdx, eax) from a runner. An error returns from the runner. At the call the
 * stack holds six registers, the frame and two return addresses, which aligns it.
 */
	.type	jpeg_lanes_call, @function
jpeg_lanes_call:
	.cfi_startproc
	.cfi_adjust_cfa_offset FRAME + 8 * 6
	.cfi_offset %rbx, -16
	.cfi_offset %rbp, -24
	.cfi_offset %r12, -32
	.cfi_offset %r13, -40
	.cfi_offset %r14, -48
	.cfi_offset %r15, -56
.Lcall:
	.cfi_adjust_cfa_offset 8
	movq	%rsi, 8 + SAVED(0)
	movq	%rdi, 8 + SAVED(1)
	movq	%r8, 8 + SAVED(2)
	movq	%r9, 8 + SAVED(3)
	movq	%r10, 8 + SAVED(4)
	movq	%r11, 8 + SAVED(5)
	movq	%rdx, %rdi
	movl	%eax, %esi
	call	jpeg_lane_symbol
	movq	8 + SAVED(0), %rsi
	movq	8 + SAVED(1), %rdi
	movq	8 + SAVED(2), %r8
	movq	8 + SAVED(3), %r9
	movq	8 + SAVED(4), %r10
	movq	8 + SAVED(5), %r11
	testl	%eax, %eax
	js	0f
	ret
0:	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
.Lout:
	addq	$FRAME, %rsp
	.cfi_adjust_cfa_offset -FRAME
	.irp	register, %r15, %r14, %r13, %r12, %rbp, %rbx
	popq	\register
	.cfi_adjust_cfa_offset -8
	.endr
	ret
	.cfi_endproc
	.size	jpeg_lanes_call, . - jpeg_lanes_call

	.section .note.GNU-stack, "", @progbits
