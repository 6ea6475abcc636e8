// A tensor group whose ranks are those of a Collectives: processes, or threads, of one host or of
// several. On one host each rank writes its tensor, piece by piece, into its own part of shared
// memory and reads the others' there. The pieces pass through a ring of places that stay in the
// cache: a rank writes some ahead of those that it reads, so that it seldom waits. Between hosts
// with equally many ranks of the group, the ranks of one local number, a column, send to each other
// from tensor to tensor, and a host's ranks pass on what came. Between others all go as messages.
// Large sums are reductions of buckets. Data path: arena, collectives -> tensor group ->
// graph/tensor. Threads: one at a time, as TensorGroup says.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "graph/sharing/tensor_group.h"
#include "runtime/comm/collectives.h"

namespace dslaunch::runtime {

class CollectivesTensorGroup final : public graph::TensorGroup {
  public:
    static constexpr int kBuckets = 2;
    static constexpr int kPlaces = 4;
    struct Slices {
        std::array<BucketId, kPlaces> ring;
        Bytes piece;  // bytes of each place of the ring
        std::array<BucketId, kBuckets> buckets;
        Bytes chunk;  // bytes of each bucket
    };
    // Adds two buckets of CHUNK, and a ring of places of at most kPieceMax, for each rank to ARENA.
    // Larger tensors take several turns.
    [[nodiscard]] static Slices add_slices(ArenaLayout& arena, Bytes chunk = mib(1));
    static constexpr Bytes kPieceMax = kib(256);

    // COLLECTIVES joins the ranks of the group and nobody else, and must outlive it. Its buckets
    // are this object's alone. Tensors on a device pass through the host's memory.
    CollectivesTensorGroup(Collectives& collectives, const Slices& slices);

    [[nodiscard]] int rank() const override { return collectives_.topology().rank(); }
    [[nodiscard]] int size() const override { return collectives_.topology().world_size(); }
    // Sums run in rank order. Sums that are reduced between hosts of several ranks add each host's
    // ranks in order, then the hosts.
    [[nodiscard]] at::Tensor sum(const at::Tensor& mine, int64_t site) override;
    [[nodiscard]] at::Tensor max(const at::Tensor& mine, int64_t site) override;
    [[nodiscard]] std::vector<at::Tensor> gather(const at::Tensor& mine, int64_t site) override;
    [[nodiscard]] std::vector<at::Tensor> exchange(const std::vector<at::Tensor>& parts,
                                                   int64_t site) override;
    [[nodiscard]] at::Tensor shift(const at::Tensor& mine, int64_t site) override;

  private:
    // A rank's description of its tensor, before its bytes.
    struct Header {
        static constexpr int kDimsMax = 8;
        int64_t site = 0;
        int64_t bytes = 0;
        int64_t dims = 0;
        int64_t sizes[kDimsMax] = {};
    };
    // A piece of every rank's bytes: [begin, begin + bytes) of each, by rank.
    struct Chunk {
        int64_t begin = 0;
        const std::vector<Header>& headers;
        const std::vector<const std::byte*>& bytes;
    };
    using Use = std::function<void(const Chunk& chunk, int64_t capacity)>;
    // Writes this rank's bytes from BEGIN on to PLACE, as many as fit.
    using Fill = std::function<void(int64_t begin, std::byte* place)>;

    [[nodiscard]] int hosts() const { return collectives_.topology().node_count(); }
    [[nodiscard]] int local_rank() const { return collectives_.topology().local_rank; }
    [[nodiscard]] int local_size() const { return collectives_.topology().local_world_size(); }
    [[nodiscard]] bool on_one_host() const { return hosts() == 1; }
    // True if every rank is in a column with one rank of each host.
    [[nodiscard]] bool in_columns() const;
    // True if a column is all ranks.
    [[nodiscard]] bool in_one_column() const { return local_size() == 1 && in_columns(); }
    [[nodiscard]] static Header header_of(const at::Tensor& mine, int64_t site);
    // A tensor that HEADER describes, of the dtype of LIKE.
    [[nodiscard]] static at::Tensor empty_of(const Header& header, const at::Tensor& like);
    // Throws Error{kDiverged} if one of HEADERS is not of site OWN.
    void check_sites(const std::vector<Header>& headers, int64_t own) const;
    // The tensors below are contiguous, on the CPU. `On host` means: among this host's ranks, by
    // local rank.
    // Calls USE with the bytes of every rank on this host, chunk by chunk.
    void share_on_host(const at::Tensor& mine, int64_t site, const Use& use);
    // The same for OWN.bytes of each rank, CAPACITY of them at a time.
    void pass_ring(const Header& own, int64_t capacity, const Fill& fill, const Use& use);
    [[nodiscard]] int64_t room() const;  // bytes of a place, behind its header
    [[nodiscard]] std::vector<at::Tensor> gather_on_host(const at::Tensor& mine, int64_t site);
    [[nodiscard]] std::vector<at::Tensor> exchange_on_host(const std::vector<at::Tensor>& parts,
                                                           int64_t site);
    // The headers of this column's ranks, by host.
    [[nodiscard]] std::vector<Header> meet_column(const Header& own);
    // SENDS[q] goes to the column's rank on host q, RECEIVES[q] comes from there; undefined ones
    // are left out, as are this host's.
    void swap_in_column(const std::vector<at::Tensor>& sends, std::vector<at::Tensor>& receives);
    [[nodiscard]] std::vector<at::Tensor> gather_in_columns(const at::Tensor& mine, int64_t site);
    [[nodiscard]] std::vector<at::Tensor> exchange_in_columns(const std::vector<at::Tensor>& parts,
                                                              int64_t site);
    // Every rank's tensor, as gather() has them.
    [[nodiscard]] std::vector<at::Tensor> all_of(const at::Tensor& mine, int64_t site);
    // A header and the bytes of MINE.
    [[nodiscard]] static std::string message_of(const at::Tensor& mine, int64_t site);
    [[nodiscard]] std::vector<at::Tensor> gather_by_messages(const at::Tensor& mine, int64_t site);
    using Combine = std::function<void(at::Tensor& into, const at::Tensor& next)>;
    [[nodiscard]] at::Tensor combine(const at::Tensor& mine, int64_t site, at::ScalarType dtype,
                                     const Combine& add);
    // INTO [numel of chunk] gets the ranks' elements of CHUNK in order, combined in DTYPE.
    static void combine_chunk(const std::vector<const std::byte*>& bytes, at::ScalarType dtype,
                              const Combine& add, at::Tensor& into);
    void combine_shards(const at::Tensor& own, int64_t site, at::ScalarType dtype,
                        const Combine& add, at::Tensor& result);
    [[nodiscard]] at::Tensor reduce_over_hosts(const at::Tensor& mine);

    Collectives& collectives_;
    Slices slices_;
    std::array<Generation, kPlaces> ring_generations_{};
    size_t ring_turn_ = 0;
    std::array<Generation, kBuckets> generations_{};
    size_t turn_ = 0;
};

}  // namespace dslaunch::runtime
