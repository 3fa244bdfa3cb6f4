/*
 * Scale and add: kernels and launchers of scale_add.h. A block sums a tile of channels over some or
 * all of a sample's positions. Later passes over [n][channels] turn these sums into the gradients
 * of the gate and gamma.
 */
extern "C" {
#include "trainer/device/cuda/kernels/scale_add.h"
}

#include "trainer/device/cuda/kernels/common/activation_grad.h"
#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/common/row_tile.h"

#include <errno.h>

/* Blocks per multiprocessor, to balance load. */
#define BLOCKS 4

/*
 * Divides the work among blocks. With dgate, a block handles all positions of a sample, because one
 * block must compute the whole sum.
 */
static void cut(struct scale_add_arguments *a, const struct kernel_device *device)
{
	row_grid_init(&a->grid, device, (uint64_t)a->n * a->positions, a->channels, a->element,
		      ROW_GRID_MAP);
	uint32_t wanted = divide_up((uint64_t)BLOCKS * device->multiprocessors,
				    (uint64_t)a->n * a->grid.blocks_y);
	uint32_t max = divide_up(a->positions, a->grid.height * ROW_GRID_UNROLL);
	a->parts = a->dgate ? 1 : wanted < max ? wanted : max;
	a->share = divide_up(a->positions, a->parts);
	a->parts = divide_up(a->positions, a->share);
	a->grid.blocks_x = a->n * a->parts;
}

uint64_t scale_add_workspace(uint32_t multiprocessors, uint32_t n, uint32_t channels)
{
	/* cut() makes the most parts if there is one tile of channels */
	uint64_t blocks = (uint64_t)n + (uint64_t)BLOCKS * multiprocessors;

	return sizeof(float) * blocks * channels;
}

/* A thread's work: a group of channels of one sample, at a subset of its positions. */
template <uint32_t LANES> struct scaled {
	uint32_t image;    /* index in the batch */
	uint32_t sample;   /* index in the global batch */
	uint32_t channel;  /* first channel of the group */
	uint32_t position; /* first position */
	/* end of the position range; at or below `position` if there is no work */
	uint32_t end;
	struct dropout_key key;
	float gate[LANES]; /* per-sample factor: gate times drop-path */
	float path;
};

template <typename V, uint32_t LANES = V::LANES>
DEVICE scaled<LANES> scaled_of(const struct scale_add_arguments *a,
			       const struct thread_position *here)
{
	scaled<LANES> s;
	uint32_t part;

	s.image = blockIdx.x / a->parts;
	part = blockIdx.x - s.image * a->parts;
	s.sample = a->step->draws.first + s.image;
	s.channel = here->channel;
	s.position = part * a->share + here->line;
	s.end = (part + 1) * a->share;
	s.end = s.end < a->positions ? s.end : a->positions;
	s.end = here->active ? s.end : 0;
	s.key = dropout_key(&a->step->draws, a->layer);
	s.path = a->path.below ? dropout_factor(a->path, dropout_sample(s.key, s.sample)) : 1;
	fill(s.gate, s.path);
	if (a->gate) {
		float gate[LANES];

		unpack(gate, load<V>(a->gate, (uint64_t)s.image * a->channels + s.channel));
		EACH(i, LANES)
			s.gate[i] *= gate[i];
	}
	return s;
}

/* Multiplies v by the dropout factors of these elements. */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void drop(float *v, const struct scale_add_arguments *a, const scaled<LANES> *s,
		 uint32_t position)
{
	uint64_t at = (uint64_t)position * a->channels + s->channel;

	if constexpr (LANES == 1) {
		struct philox_block block = dropout_quad(s->key, s->sample, (uint32_t)(at / 4));
		uint32_t low = at & 1 ? block.b : block.a, high = at & 1 ? block.d : block.c;

		v[0] *= dropout_factor(a->dropout, at & 2 ? high : low);
	} else {
		EACH(i, LANES / 4) {
			struct philox_block block =
				dropout_quad(s->key, s->sample, (uint32_t)(at / 4 + i));

			v[4 * i] *= dropout_factor(a->dropout, block.a);
			v[4 * i + 1] *= dropout_factor(a->dropout, block.b);
			v[4 * i + 2] *= dropout_factor(a->dropout, block.c);
			v[4 * i + 3] *= dropout_factor(a->dropout, block.d);
		}
	}
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	scale_add_kernel(const __grid_constant__ struct scale_add_arguments a)
{
	const struct thread_position here = thread_position_of<V>(&a.grid);
	const scaled<LANES> s = scaled_of<V>(&a, &here);
	const uint32_t height = a.grid.height;
	float gamma[LANES];

	load_channels(gamma, a.gamma, s.channel, 1);
	EACH(i, LANES)
		gamma[i] *= s.gate[i];
	for (uint32_t first = s.position; first < s.end; first += ROW_GRID_UNROLL * height) {
		uint64_t at = ((uint64_t)s.image * a.positions + first) * a.channels + s.channel;
		V raw[ROW_GRID_UNROLL], added[ROW_GRID_UNROLL];

		EACH_IF(u, ROW_GRID_UNROLL, first + u * height < s.end) {
			raw[u] = load<V>(a.x, at + u * here.step);
			if (a.residual)
				added[u] = load<V>(a.residual, at + u * here.step);
		}
		EACH_IF(u, ROW_GRID_UNROLL, first + u * height < s.end) {
			float v[LANES], residual[LANES];

			unpack(v, raw[u]);
			EACH(i, LANES)
				v[i] *= gamma[i];
			if (a.dropout.below)
				drop<V>(v, &a, &s, first + u * height);
			if (a.residual) {
				unpack(residual, added[u]);
				add(v, residual);
			}
			activate(v, a.activation, false);
			store<V>(a.y, at + u * here.step, v);
		}
	}
}

int scale_add_forward(const struct kernel_device *device,
		      const struct scale_add_arguments *arguments)
{
	struct scale_add_arguments a = *arguments;

	cut(&a, device);
	return launch_grid(device, INSTANCES(scale_add_kernel), &a);
}

#define AT_ONCE (ROW_GRID_UNROLL / 2)

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	scale_add_backward_kernel(const __grid_constant__ struct scale_add_arguments a)
{
	const struct thread_position here = thread_position_of<V>(&a.grid);
	const scaled<LANES> s = scaled_of<V>(&a, &here);
	const uint32_t height = a.grid.height;
	const bool relu = a.activation == DEVICE_RELU;
	float gamma[LANES], products[LANES];

	load_channels(gamma, a.gamma, s.channel, 1);
	EACH(i, LANES)
		gamma[i] *= s.gate[i];
	fill(products, 0);
	for (uint32_t first = s.position; first < s.end; first += AT_ONCE * height) {
		uint64_t at = ((uint64_t)s.image * a.positions + first) * a.channels + s.channel;
		V dy[AT_ONCE], dy2[AT_ONCE], y[AT_ONCE], x[AT_ONCE];

		EACH_IF(u, AT_ONCE, first + u * height < s.end) {
			dy[u] = load<V>(a.dy, at + u * here.step);
			if (a.dy2)
				dy2[u] = load<V>(a.dy2, at + u * here.step);
			if (relu)
				y[u] = load<V>(a.y, at + u * here.step);
			if (a.partial)
				x[u] = load<V>(a.x, at + u * here.step);
		}
		EACH_IF(u, AT_ONCE, first + u * height < s.end) {
			float dz[LANES], v[LANES];

			unpack(dz, dy[u]);
			if (a.dy2) {
				unpack(v, dy2[u]);
				add(dz, v);
			}
			if (relu) {
				unpack(v, y[u]);
				activate_backward(dz, v, a.activation, false);
			}
			if (a.dz)
				store<V>(a.dz, at + u * here.step, dz);
			if (a.dropout.below)
				drop<V>(dz, &a, &s, first + u * height);
			if (a.partial) {
				unpack(v, x[u]);
				EACH(i, LANES)
					products[i] += dz[i] * v[i];
			}
			if (a.dx) {
				EACH(i, LANES)
					dz[i] *= gamma[i];
				store<V>(a.dx, at + u * here.step, dz);
			}
		}
	}
	if (!a.partial)
		return;
	EACH(i, LANES)
		products[i] *= a.dgate ? s.path : s.gate[i];
	store_partial_sums(&a.grid, &here, products, products, false, a.partial);
}

/*
 * Computes the gates' gradients from the sums of dz x times drop-path, and replaces each sum by the
 * term that gamma's gradient adds up.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	scale_add_gates_kernel(const __grid_constant__ struct scale_add_arguments a)
{
	uint64_t at = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;

	if (at >= (uint64_t)a.n * a.channels)
		return;
	float product = a.partial[at];
	kernel_store(a.dgate, at, a.element, product * (a.gamma ? a.gamma[at % a.channels] : 1));
	a.partial[at] = product * kernel_load(a.gate, at, a.element);
}

int scale_add_backward(const struct kernel_device *device,
		       const struct scale_add_arguments *arguments)
{
	struct scale_add_arguments a = *arguments;
	struct row_reduce_combine combine = {
		.partial = a.partial, .sum = a.dgamma, .add = a.add_dgamma};
	bool sums = a.dgate || a.dgamma;

	if (!sums)
		a.partial = NULL;
	if ((!sums && !a.dz && !a.dx) || (sums && (!a.x || !a.partial)))
		return -EINVAL;
	cut(&a, device);
	combine.blocks = a.grid.blocks_x;
	combine.channels = a.channels;
	int r = launch_grid(device, INSTANCES(scale_add_backward_kernel), &a);
	if (r == 0 && a.dgate)
		r = launch_flat(device, KERNEL(scale_add_gates_kernel), (uint64_t)a.n * a.channels,
				&a);
	return r == 0 && a.dgamma ? row_reduce_combine(device, &combine) : r;
}
