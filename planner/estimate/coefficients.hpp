// Every number that the analytical estimate does not derive, but for the traits of frameworks
// (core/plan/framework.hpp): rates of devices and of the fabric between them. docs/cost-model.md
// has the same table with the source of each; bench_accuracy judges them. Plain data; seconds,
// bytes and operations per second.
#pragma once

#include <string_view>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/plan/framework.hpp"

namespace pipewright::planner {

/// One kind of accelerator. The two efficiencies are the only values that were fitted to
/// measurements of training (docs/cost-model.md names the rows).
struct DeviceRates {
  std::string_view name;
  double peak_flops = 0;               // dense products of 16-bit numbers
  double memory_bytes_per_second = 0;  // of the data sheet
  double memory_bytes = 0;
  int multiprocessors = 0;
  int tile_rows = 0, tile_columns = 0;  // of the library's large matrix product
  bool tries_tiles = false;             // the library picks among tiles by time (cuBLAS 12)
  double matmul_efficiency = 0;         // of the peak, in a product that fills the device
  double memory_efficiency = 0;         // of the data sheet, in kernels that stream
  double link_efficiency = 1;           // of the links in a node, where their rate is a nominal one
  double faster_in_8_bits = 0;          // dense products, against those of 16 bits; 0: it has none
  double watts = 0;                     // what the data sheet lets it take
  double flops_of_cores = 0;            // outside its tensor cores, sums of 32 bits
  double host_bytes_per_second = 0;     // to the host's memory, of the data sheet
  // Rates of attention's best kernels against a plain product, and of FlashAttention-2 against
  // these:
  double flash_forward = 0.75, flash_backward = 0.65, older_flash = 1;
  // How far all times of a machine with it are off, of the logarithm: the standard deviation of
  // what sources that were left out were off by (docs/decisions/0094-blocking-launches.md).
  double time_deviation = 0.12;
  double message_share = 1;     // of a ring's rate in a node: what one send and its receive reach
  bool scales_blocks = false;   // its products take blocks with scales of their own: MXFP8
  double faster_in_4_bits = 0;  // such products of NVFP4, against those of 16 bits; 0: it has none

  /// Long products run into the limit of power before that of the peak: what devices of one process
  /// of manufacture reach of their peaks is in proportion to this, in joules an operation.
  constexpr double joules_of_peak() const { return watts / peak_flops; }
  /// Of dense products of numbers of so many bytes (a ProductFormat's), in operations per second;
  /// 0: it has none.
  double product_rate(double bytes) const {
    const double in_8_bits = bytes == 1 || scales_blocks ? faster_in_8_bits : 0;
    return peak_flops * matmul_efficiency *
           (bytes == 2  ? 1
            : bytes < 1 ? faster_in_4_bits
                        : in_8_bits);
  }
};

/// A name such as "A100" or "GB200", alone or within a longer one ("NVIDIA A100-SXM4-80GB"). Throws
/// InputError for one that is not known.
DeviceRates device_rates(std::string_view name);
std::vector<std::string_view> device_rate_names();

/// Of the memory of such a device, what its driver shows; 1 where nothing is known.
double shown_share(std::string_view device);
/// What a process has on a device beside its tensors: CUDA's context and libraries, in bytes.
inline constexpr double kBesideTensors = 1024.0 * 1024 * 1024;

/// A node and its way out. Bandwidths are what a large collective reaches for each device
/// ("bus bandwidth" of nccl-tests), in one direction.
struct NodeRates {
  DeviceRates device;
  double inside_bytes_per_second = 0;   // between devices of the node
  double network_bytes_per_second = 0;  // of the whole node, all its ports together
};

/// Nodes of `devices_per_node` devices; `nodes` has one entry for each node, or one for all.
struct Machine {
  int devices_per_node = 1;
  std::vector<NodeRates> nodes;

  /// Of the device that is known least.
  double time_deviation() const;
  const NodeRates& node(int index) const {
    return nodes.size() == 1 ? nodes.front() : nodes[static_cast<std::size_t>(index)];
  }
};

/// 8 devices a node with NVLink, as in the published systems (DGX and similar ones). The rate of
/// the network is that of a whole node.
Machine nvlink_machine(std::string_view device, double network_bytes_per_second);

/// The nodes of a cluster file or preset: rates by the device's model, its peak, its memory and its
/// network as the cluster has them. Of the links inside a node collectives reach the same share as
/// of the device's own. Throws InputError for a device without rates.
Machine machine_of(const Cluster& cluster);

/// Throws InputError where a device has no products of the framework's numbers.
void require_products(const Machine& machine, const FrameworkTraits& framework);

/// The same with its nodes in another order (nodes_in_order()).
Machine in_order(const Machine& machine, const std::vector<int>& nodes);

// Of collectives (measured: nccl-tests on 8 A100, golden/measured/nccl_allreduce_a100.json): a
// message too small to fill the ring costs this much more than bytes over bandwidth.
inline constexpr double kCollectiveStart = 40e-6;
inline constexpr double kCollectiveStartPerMember = 7e-6;
inline constexpr double kNetworkStart = 30e-6;
/// Among nodes: a step of a ring over NVLink and over the network, and a level of a tree of nodes,
/// up and down. NCCL's own figures for its protocol LL128, by which it chooses
/// (src/graph/tuning.cc, hwLat: 1.9, 4.0 and twice 8.5 µs); the bulk protocol's are 3.4, 14 and
/// twice 28.
inline constexpr double kRingStepInside = 1.9e-6, kRingStepAcross = 4e-6;
inline constexpr double kTreeLevel = 17e-6;
/// A message up to this many bytes leaves before its receiver asks for it (NCCL_BUFFSIZE's
/// default).
inline constexpr double kBufferBytes = 4 * 1024 * 1024;
/// A product begins with an empty pipeline: as if it were this much deeper.
inline constexpr double kMatmulStartDepth = 128;
/// Of a product that adds to a sum, the order of the norm of its arithmetic and of its traffic: on
/// B200 adding 32-bit sums costs 0.1 of a product of depth 4,096 and 0.5 of one of depth 1,024,
/// 0.4 and 0.7 of the traffic alone (MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json).
inline constexpr double kAccumulateOrder = 2;
/// Megatron-LM's fused softmax takes scores of a multiple of so many heads, over all samples
/// (megatron/model/fused_softmax.py, is_kernel_available); others are computed unfused.
inline constexpr double kHeadsOfFusedSoftmax = 4;
/// A part of a product that is cut along its depth (split-K) keeps at least this much of it.
inline constexpr double kDepthOfPart = 4096;
/// A small tile (128 x 128) against the device's large one, where both fill it.
inline constexpr double kSmallTilePenalty = 1.1;
/// A product of 16-bit numbers with a side that is not a multiple of eight, such as an unpadded
/// vocabulary: loads of less than 16 bytes (NVIDIA, guide to matrix products, on alignment).
inline constexpr double kUnalignedRate = 1.0 / 3;
/// To start one kernel of several that an operator starts in a loop: the driver's part alone
/// (NVIDIA, "Getting Started with CUDA Graphs", 3.8 µs).
inline constexpr double kLaunchInLoop = 3.8e-6;
/// Bytes for each number that experts make, to add their biases times the weights of the tokens'
/// choices: not in the product but after it, in 32 bits (Megatron core 0.16, transformer/moe/
/// experts.py, TEGroupedMLP._apply_bias): the product of both written, read again with the result
/// and the sum written, all experts' sums put together, and turned into 16 bits (4, 10, 8, 6).
/// Backward turns the gradient into 32 bits and back (6, 6), multiplies it by both and sums (12,
/// 12), and puts the experts' together (4).
inline constexpr double kExpertBiasForward = 28, kExpertBiasBackward = 40;
/// Of a block with experts whose router and sorting are CUDA graphs: the kernels of a forward that
/// are none, but for the experts' products. Counted in Megatron core 0.16's sources with the flex
/// dispatcher (transformer/moe: token_dispatcher, experts), roughly.
inline constexpr double kKernelsOutsideGraphs = 12;
/// Operations a second of a multiprocessor in the scan of Mamba-2 by its authors' Triton kernels:
/// 134e12 of an H800's 132 in TileLang's kernel (tile-ai/tilelang, benchmark/mamba2/README.md),
/// against which Triton's five take 1.5 to 2.51 times as long fused or not (PyTorch's blog,
/// "Accelerating Mamba2 with Kernel Fusion"), the geometric mean. Small products, exponentials
/// between them: what they reach does not grow with the peak of the tensor cores.
inline constexpr double kScanRate = 134e12 / 132 / 1.94;
/// Host and device work side by side. Where neither takes much longer than the other, both add to
/// the time: the norm of order 4 of their times.
inline constexpr double kOverlapOrder = 4;
/// The order for a block that tensor parallel ranks divide: its all-reduces make all of them wait
/// for the last, so that less of a rank's work overlaps.
inline constexpr double kOverlapOrderOfGroups = 2;

}  // namespace pipewright::planner
