#include "runtime/compute/tensor_collectives.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/range.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::runtime {

namespace {

constexpr int64_t kHeaderBytes = 128;        // two cache lines; elements after it are aligned
constexpr size_t kShardedBytes = 256 << 10;  // smaller sums are sent whole
constexpr int64_t kElementBytes = 16;        // size of the largest type

at::Tensor on_host(const at::Tensor& tensor) {
    return tensor.detach().to(at::kCPU).contiguous();
}

const std::byte* data_of(const at::Tensor& tensor) {
    return static_cast<const std::byte*>(tensor.const_data_ptr());
}

std::byte* data_of(at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
}

template <typename T>
std::vector<const T*> terms_of(const std::vector<const std::byte*>& bytes) {
    std::vector<const T*> terms;
    for (const std::byte* of_rank : bytes) terms.push_back(reinterpret_cast<const T*>(of_rank));
    return terms;
}

// Checks that another rank's tensor has as many BYTES as OWN. The two will be combined.
void check_bytes(int64_t bytes, const at::Tensor& own) {
    DSL_CHECK(bytes == static_cast<int64_t>(own.nbytes()),
              "ranks cannot combine tensors of {} and {} bytes", bytes, own.nbytes());
}

// Returns a view of NUMEL elements of DTYPE at BYTES, which may only be read.
at::Tensor view_of(const std::byte* bytes, int64_t numel, at::ScalarType dtype) {
    return at::from_blob(const_cast<std::byte*>(bytes), {numel}, dtype);
}

constexpr int kRingPlaces = std::tuple_size_v<decltype(TensorGroupSlices::ring)>;
constexpr int kSumBuckets = std::tuple_size_v<decltype(TensorGroupSlices::buckets)>;
constexpr Bytes kPieceMax = kib(256);

class CollectivesTensorGroup final : public graph::TensorGroup {
  public:
    CollectivesTensorGroup(Collectives& collectives, const TensorGroupSlices& slices)
        : collectives_(collectives), slices_(slices) {
        static_assert(sizeof(Header) <= kHeaderBytes);
    }

    [[nodiscard]] int rank() const override { return collectives_.topology().rank(); }
    [[nodiscard]] int size() const override { return collectives_.topology().world_size(); }
    // Adds in rank order. There is one exception: if a sum is reduced between hosts with several
    // ranks, the ranks of each host are added first, and then the sums of the hosts.
    [[nodiscard]] at::Tensor sum(const at::Tensor& mine, int64_t site) override {
        const bool narrow = at::isReducedFloatingType(mine.scalar_type());
        const at::ScalarType dtype = narrow ? at::kFloat : mine.scalar_type();
        // A tensor of at least the size of a bucket is summed in buckets, unless every host has
        // only one rank.
        const bool reduces =
            dtype == at::kFloat && mine.numel() * 4 >= slices_.chunk.value && !in_one_column();
        if (on_one_host() || !reduces) return combine(mine, site, dtype, {});
        // This gather checks that all ranks are at the same collective.
        static_cast<void>(all_of(at::empty({0}), site));
        return reduce_over_hosts(on_host(mine).to(at::kFloat)).to(mine.options());
    }

    [[nodiscard]] at::Tensor max(const at::Tensor& mine, int64_t site) override {
        return combine(
            mine, site, mine.scalar_type(),
            [](at::Tensor& into, const at::Tensor& next) { into = at::maximum(into, next); });
    }
    [[nodiscard]] std::vector<at::Tensor> gather(const at::Tensor& mine, int64_t site) override {
        std::vector<at::Tensor> all = all_of(on_host(mine), site);
        for (at::Tensor& tensor : all) tensor = tensor.to(mine.device());
        return all;
    }
    [[nodiscard]] std::vector<at::Tensor> exchange(const std::vector<at::Tensor>& parts,
                                                   int64_t site) override {
        std::vector<at::Tensor> all;
        if (on_one_host() || in_columns()) {
            all = on_one_host() ? exchange_on_host(parts, site) : exchange_in_columns(parts, site);
        } else {
            for (const at::Tensor& of_rank : gather_by_messages(on_host(at::stack(parts)), site)) {
                DSL_CHECK(of_rank.size(0) == size(),
                          "another rank of the tensor group exchanges tensors of different shapes");
                all.push_back(of_rank.select(0, rank()));
            }
        }
        for (at::Tensor& tensor : all) tensor = tensor.to(parts.front().device());
        return all;
    }

    // Returns the previous rank's tensor. Ranks are numbered host by host, so the first rank of a
    // host needs the tensor of the previous host's last rank. It gets the tensor of its own host's
    // last rank, and sends this tensor to the first rank of the next host.
    [[nodiscard]] at::Tensor shift(const at::Tensor& mine, int64_t site) override {
        const at::Tensor own = on_host(mine);
        const auto bytes = static_cast<int64_t>(own.nbytes());
        const auto require_equal = [&](const Header& header) {
            DSL_CHECK(header.bytes == bytes,
                      "tensor rank {} shifts {} bytes, but another rank shifts {}", rank(), bytes,
                      header.bytes);
        };
        at::Tensor theirs = own;
        if (local_size() > 1) {
            theirs = at::empty_like(own);
            const auto before =
                static_cast<size_t>((local_rank() + local_size() - 1) % local_size());
            share_on_host(own, site, [&](const Chunk& chunk, int64_t capacity) {
                std::ranges::for_each(chunk.headers, require_equal);
                std::memcpy(data_of(theirs) + chunk.begin, chunk.bytes[before],
                            static_cast<size_t>(std::min(capacity, bytes - chunk.begin)));
            });
        }
        if (!on_one_host() && local_rank() == 0) {
            std::ranges::for_each(meet_column(header_of(own, site)), require_equal);
            std::vector<at::Tensor> sends(static_cast<size_t>(hosts())), receives(sends.size());
            const int host = collectives_.topology().node_rank;
            sends[(host + 1) % hosts()] = theirs;
            at::Tensor& from_before = receives[(host + hosts() - 1) % hosts()];
            from_before = at::empty_like(own);
            swap_in_column(sends, receives);
            theirs = from_before;
        }
        return theirs.to(mine.device());
    }

  private:
    // A rank's description of its tensor, which precedes the tensor's bytes.
    struct Header {
        static constexpr int kDimsMax = 8;
        int64_t site = 0;
        int64_t bytes = 0;
        int64_t dims = 0;
        int64_t sizes[kDimsMax] = {};
    };
    // A chunk of the tensors of all ranks, by rank. It begins at byte BEGIN of each tensor.
    struct Chunk {
        int64_t begin = 0;
        const std::vector<Header>& headers;
        const std::vector<const std::byte*>& bytes;
    };
    using Use = std::function<void(const Chunk& chunk, int64_t capacity)>;
    // Writes this rank's bytes to PLACE, beginning with byte BEGIN, until PLACE is full or no bytes
    // are left.
    using Fill = std::function<void(int64_t begin, std::byte* place)>;

    [[nodiscard]] int hosts() const { return collectives_.topology().node_count(); }
    [[nodiscard]] int local_rank() const { return collectives_.topology().local_rank; }
    [[nodiscard]] int local_size() const { return collectives_.topology().local_world_size(); }
    [[nodiscard]] bool on_one_host() const { return hosts() == 1; }
    // Returns true if all hosts have equally many ranks. The ranks with the same local rank are
    // then a column.
    [[nodiscard]] bool in_columns() const {
        const std::vector<int>& sizes = collectives_.topology().node_sizes;
        return std::ranges::all_of(sizes, [&](int size) { return size == sizes.front(); });
    }
    // Returns true if one column contains all ranks.
    [[nodiscard]] bool in_one_column() const { return local_size() == 1 && in_columns(); }
    [[nodiscard]] static Header header_of(const at::Tensor& mine, int64_t site) {
        DSL_CHECK(mine.dim() <= Header::kDimsMax,
                  "a tensor of {} dimensions cannot be sent between ranks", mine.dim());
        Header header;
        header.site = site;
        header.bytes = static_cast<int64_t>(mine.nbytes());
        header.dims = mine.dim();
        std::copy(mine.sizes().begin(), mine.sizes().end(), header.sizes);
        return header;
    }

    // Returns a new tensor with the shape in HEADER and the dtype of LIKE.
    [[nodiscard]] static at::Tensor empty_of(const Header& header, const at::Tensor& like) {
        DSL_CHECK(header.dims >= 0 && header.dims <= Header::kDimsMax,
                  "a tensor of {} dimensions cannot be sent between ranks", header.dims);
        at::Tensor tensor = at::empty(
            at::IntArrayRef(header.sizes, static_cast<size_t>(header.dims)), like.options());
        DSL_CHECK(static_cast<int64_t>(tensor.nbytes()) == header.bytes,
                  "another rank's tensor has {} bytes, but its shape needs {} bytes in this rank's "
                  "data type",
                  header.bytes, tensor.nbytes());
        return tensor;
    }

    // Throws Error{kDiverged} if one of HEADERS is from another site than OWN.
    void check_sites(const std::vector<Header>& headers, int64_t own) const {
        for (const Header& header : headers)
            if (header.site != own)
                fail(ExitCode::kDiverged,
                     "tensor rank {} is at collective {} of the graph, but another rank is at {}, "
                     "so their graphs differ",
                     rank(), own, header.site);
    }
    // Calls USE with the bytes of every rank on this host, chunk by chunk. This function and the
    // functions below expect contiguous tensors on the CPU. Functions with `on_host` in their names
    // work among the ranks of this host; their results are ordered by local rank.
    void share_on_host(const at::Tensor& mine, int64_t site, const Use& use) {
        const Header own = header_of(mine, site);
        const std::byte* const bytes = data_of(mine);
        const auto fill = [&](int64_t begin, std::byte* place) {
            std::memcpy(place, bytes + begin,
                        static_cast<size_t>(std::min(room(), own.bytes - begin)));
        };
        pass_ring(own, room(), fill, use);
    }
    // Does the same as share_on_host(), with bytes that FILL writes. A chunk has at most CAPACITY
    // bytes. OWN describes this rank's bytes.
    void pass_ring(const Header& own, int64_t capacity, const Fill& fill, const Use& use) {
        struct Written {
            BucketId bucket;
            Generation generation = 0;
        };
        // A place is written again only after all ranks have read it. One more place stays free, so
        // that a writer need not wait for the readers of the previous piece.
        constexpr int64_t kAhead = kRingPlaces - 2;
        std::array<Written, kRingPlaces> ring;
        std::vector<Header> headers(static_cast<size_t>(local_size()));
        int64_t most = own.bytes;  // most bytes of any rank, known after the first piece
        int64_t written = 0;       // pieces written
        const auto write_next = [&] {
            const int64_t begin = written * capacity;
            const auto turn = ring_turn_;
            ring_turn_ = (ring_turn_ + 1) % kRingPlaces;
            Written& now = ring[static_cast<size_t>(written++ % kRingPlaces)];
            now = {slices_.ring[turn], ++ring_generations_[turn]};
            collectives_.await_free(now.bucket, now.generation);
            std::byte* const place = std::as_writable_bytes(collectives_.bucket(now.bucket)).data();
            if (begin == 0) std::memcpy(place, &own, sizeof own);
            if (begin < own.bytes) fill(begin, place + kHeaderBytes);
            collectives_.post(now.bucket, now.generation);
        };
        for (int64_t piece = 0; piece == 0 || piece * capacity < most; ++piece) {
            while (written == 0 || (written <= piece + kAhead && written * capacity < most))
                write_next();
            const Written& now = ring[static_cast<size_t>(piece % kRingPlaces)];
            std::vector<const std::byte*> bytes;
            for (const float* source : collectives_.await_sources(now.bucket, now.generation))
                bytes.push_back(reinterpret_cast<const std::byte*>(source));
            if (piece == 0) {
                for (size_t r = 0; r < headers.size(); ++r) {
                    std::memcpy(&headers[r], bytes[r], sizeof own);
                    most = std::max(most, headers[r].bytes);
                }
                check_sites(headers, own.site);
            }
            for (const std::byte*& place_of_rank : bytes) place_of_rank += kHeaderBytes;
            use({piece * capacity, headers, bytes}, capacity);
            collectives_.release(now.bucket, now.generation);
        }
    }

    [[nodiscard]] int64_t room() const {
        return slices_.piece.value - kHeaderBytes;
    }  // bytes of a place, after its header
    [[nodiscard]] std::vector<at::Tensor> gather_on_host(const at::Tensor& mine, int64_t site) {
        std::vector<at::Tensor> all;
        share_on_host(mine, site, [&](const Chunk& chunk, int64_t capacity) {
            for (size_t r = 0; r < chunk.bytes.size(); ++r) {
                const Header& header = chunk.headers[r];
                const bool is_own = static_cast<int>(r) == local_rank();
                if (chunk.begin == 0) all.push_back(is_own ? mine : empty_of(header, mine));
                if (is_own) continue;
                const int64_t bytes = std::min(capacity, header.bytes - chunk.begin);
                if (bytes > 0)
                    std::memcpy(data_of(all[r]) + chunk.begin, chunk.bytes[r],
                                static_cast<size_t>(bytes));
            }
        });
        return all;
    }

    // Sends PARTS[r] to local rank r, and returns the tensors that the local ranks have sent to
    // this rank. Each place of the ring has room for a piece for each rank.
    [[nodiscard]] std::vector<at::Tensor> exchange_on_host(const std::vector<at::Tensor>& parts,
                                                           int64_t site) {
        const auto me = static_cast<size_t>(local_rank());
        std::vector<at::Tensor> own, all;
        for (const at::Tensor& part : parts) {
            own.push_back(on_host(part));
            all.push_back(at::empty_like(own.back()));
        }
        const auto part_bytes = static_cast<int64_t>(own.front().nbytes());
        const int64_t capacity = room() / local_size() / kElementBytes * kElementBytes;
        std::memcpy(data_of(all[me]), data_of(own[me]), static_cast<size_t>(part_bytes));
        const auto piece_bytes = [&](int64_t begin) {
            return static_cast<size_t>(std::min(capacity, part_bytes - begin));
        };
        const auto fill = [&](int64_t begin, std::byte* place) {
            for (size_t r = 0; r < own.size(); ++r)
                if (r != me)
                    std::memcpy(place + static_cast<int64_t>(r) * capacity, data_of(own[r]) + begin,
                                piece_bytes(begin));
        };
        pass_ring(header_of(own.front(), site), capacity, fill, [&](const Chunk& chunk, int64_t) {
            for (size_t r = 0; r < all.size(); ++r) {
                DSL_CHECK(chunk.headers[r].bytes == part_bytes,
                          "local rank {} exchanges tensors of other shapes", r);
                if (r != me && chunk.begin < part_bytes)
                    std::memcpy(data_of(all[r]) + chunk.begin,
                                chunk.bytes[r] + static_cast<int64_t>(me) * capacity,
                                piece_bytes(chunk.begin));
            }
        });
        return all;
    }

    // Exchanges headers in this column. Returns the headers of its ranks, by host.
    [[nodiscard]] std::vector<Header> meet_column(const Header& own) {
        std::vector<Header> headers(static_cast<size_t>(hosts()), own);
        std::vector<std::span<const std::byte>> sends(headers.size(),
                                                      std::as_bytes(std::span(&own, 1)));
        std::vector<std::span<std::byte>> receives;
        for (Header& header : headers)
            receives.push_back(std::as_writable_bytes(std::span(&header, 1)));
        collectives_.swap_over_hosts(sends, receives);
        check_sites(headers, own.site);
        return headers;
    }

    // Sends SENDS[q] to the column's rank on host q, and receives RECEIVES[q] from it. Undefined
    // tensors and this host's own entries are left out.
    void swap_in_column(const std::vector<at::Tensor>& sends, std::vector<at::Tensor>& receives) {
        std::vector<std::span<const std::byte>> out(sends.size());
        std::vector<std::span<std::byte>> in(receives.size());
        for (size_t q = 0; q < sends.size(); ++q) {
            if (sends[q].defined()) out[q] = {data_of(sends[q]), sends[q].nbytes()};
            if (receives[q].defined()) in[q] = {data_of(receives[q]), receives[q].nbytes()};
        }
        collectives_.swap_over_hosts(out, in);
    }

    [[nodiscard]] std::vector<at::Tensor> gather_in_columns(const at::Tensor& mine, int64_t site) {
        const std::vector<Header> headers = meet_column(header_of(mine, site));
        const auto host = static_cast<size_t>(collectives_.topology().node_rank);
        std::vector<at::Tensor> column;
        for (size_t q = 0; q < headers.size(); ++q)
            column.push_back(q == host ? mine : empty_of(headers[q], mine));
        swap_in_column(std::vector<at::Tensor>(column.size(), mine), column);
        if (local_size() == 1) return column;
        std::vector<at::Tensor> all;
        for (const at::Tensor& of_host : column)
            for (at::Tensor& of_rank : gather_on_host(of_host, site))
                all.push_back(std::move(of_rank));
        return all;
    }

    [[nodiscard]] std::vector<at::Tensor> exchange_in_columns(const std::vector<at::Tensor>& parts,
                                                              int64_t site) {
        const auto ranks = static_cast<size_t>(local_size());
        const auto host = static_cast<size_t>(collectives_.topology().node_rank);
        std::vector<at::Tensor> sends, receives;  // parts to and from each host's ranks
        for (size_t q = 0; q < static_cast<size_t>(hosts()); ++q) {
            const auto first = parts.begin() + static_cast<std::ptrdiff_t>(q * ranks);
            sends.push_back(ranks == 1 ? on_host(*first)
                                       : on_host(at::stack(std::vector<at::Tensor>(
                                             first, first + static_cast<std::ptrdiff_t>(ranks)))));
            DSL_CHECK(sends.back().nbytes() == sends.front().nbytes(),
                      "the parts have {} and {} bytes, but must have the same size",
                      sends.front().nbytes(), sends.back().nbytes());
            receives.push_back(q == host ? sends.back().clone() : at::empty_like(sends.back()));
        }
        const auto bytes = static_cast<int64_t>(sends.front().nbytes());
        for (const Header& header : meet_column(header_of(sends.front(), site)))
            DSL_CHECK(header.bytes == bytes,
                      "tensor ranks exchange {} and {} bytes, but must exchange the same number",
                      header.bytes, bytes);
        swap_in_column(sends, receives);
        if (ranks == 1) return receives;
        std::vector<at::Tensor> all;
        for (const at::Tensor& of_host : receives)
            for (at::Tensor& part : exchange_on_host(of_host.unbind(0), site))
                all.push_back(std::move(part));
        return all;
    }

    // Returns every rank's tensor, as gather() does.
    [[nodiscard]] std::vector<at::Tensor> all_of(const at::Tensor& mine, int64_t site) {
        if (on_one_host()) return gather_on_host(mine, site);
        return in_columns() ? gather_in_columns(mine, site) : gather_by_messages(mine, site);
    }
    [[nodiscard]] std::vector<at::Tensor> gather_by_messages(const at::Tensor& mine, int64_t site) {
        const Header own = header_of(mine, site);
        std::string message(kHeaderBytes + mine.nbytes(), '\0');
        std::memcpy(message.data(), &own, sizeof own);
        if (own.bytes > 0) std::memcpy(message.data() + kHeaderBytes, data_of(mine), mine.nbytes());
        std::vector<std::string> messages = collectives_.all_gather(message);
        std::vector<Header> headers(messages.size());
        for (size_t r = 0; r < messages.size(); ++r)
            std::memcpy(&headers[r], messages[r].data(), sizeof(Header));
        check_sites(headers, site);
        std::vector<at::Tensor> all;
        for (size_t r = 0; r < messages.size(); ++r) {
            all.push_back(empty_of(headers[r], mine));
            std::memcpy(data_of(all[r]), messages[r].data() + kHeaderBytes, all[r].nbytes());
            std::string().swap(messages[r]);  // frees the message, which may be large
        }
        return all;
    }

    using Combine = std::function<void(at::Tensor& into, const at::Tensor& next)>;
    // Combines the elements of all ranks by ADD, in rank order, in DTYPE.
    [[nodiscard]] at::Tensor combine(const at::Tensor& mine, int64_t site, at::ScalarType dtype,
                                     const Combine& add) {
        const at::Tensor own = on_host(mine);
        const auto element = static_cast<int64_t>(own.element_size());
        at::Tensor result = at::empty(own.sizes(), own.options());
        if (on_one_host()) {
            share_on_host(own, site, [&](const Chunk& chunk, int64_t capacity) {
                if (chunk.begin == 0)
                    for (const Header& header : chunk.headers) check_bytes(header.bytes, own);
                const int64_t numel =
                    std::min(capacity, static_cast<int64_t>(own.nbytes()) - chunk.begin) / element;
                if (numel <= 0) return;
                at::Tensor into = view_of(data_of(result) + chunk.begin, numel, own.scalar_type());
                combine_chunk(chunk.bytes, dtype, add, into);
            });
        } else if (in_one_column() && own.nbytes() >= kShardedBytes) {
            combine_shards(own, site, dtype, add, result);
        } else {
            const std::vector<at::Tensor> all = all_of(own, site);
            std::vector<const std::byte*> bytes;
            for (const at::Tensor& of_rank : all) {
                check_bytes(static_cast<int64_t>(of_rank.nbytes()), own);
                bytes.push_back(data_of(of_rank));
            }
            at::Tensor into = result.view({own.numel()});
            if (own.numel() > 0) combine_chunk(bytes, dtype, add, into);
        }
        return result.to(mine.device());
    }

    // Fills INTO [numel of chunk] with the elements of CHUNK of all ranks, combined in rank order,
    // in DTYPE.
    static void combine_chunk(const std::vector<const std::byte*>& bytes, at::ScalarType dtype,
                              const Combine& add, at::Tensor& into) {
        const int64_t numel = into.numel();
        if (dtype == at::kFloat && into.scalar_type() == at::kFloat && !add)
            return kernels::ordered_sum(terms_of<float>(bytes), 1.0F, into.data_ptr<float>(),
                                        numel);
        if (dtype == at::kFloat && at::isReducedFloatingType(into.scalar_type()) && !add)
            return kernels::ordered_half_sum(
                terms_of<uint16_t>(bytes), static_cast<uint16_t*>(into.data_ptr()), numel,
                into.scalar_type() == at::kHalf ? DType::kF16 : DType::kBF16);
        at::Tensor total = view_of(bytes[0], numel, into.scalar_type()).to(dtype, false, true);
        for (size_t r = 1; r < bytes.size(); ++r) {
            const at::Tensor next = view_of(bytes[r], numel, into.scalar_type());
            if (add) {
                add(total, next);
            } else {
                total.add_(next);
            }
        }
        into.copy_(total);
    }

    // Divides the elements among the ranks. Each rank combines its part of all ranks' elements, and
    // sends the result to the other ranks.
    void combine_shards(const at::Tensor& own, int64_t site, at::ScalarType dtype,
                        const Combine& add, at::Tensor& result) {
        for (const Header& header : meet_column(header_of(own, site)))
            check_bytes(header.bytes, own);
        const auto me = static_cast<size_t>(rank());
        const auto part_of = [&](const at::Tensor& tensor, size_t r) {
            const Range part = part_range(own.numel(), {static_cast<int>(r), size()});
            return tensor.view({own.numel()}).narrow(0, part.begin, part.numel);
        };
        std::vector<at::Tensor> sends, terms, sums;
        for (size_t r = 0; r < static_cast<size_t>(size()); ++r) {
            sends.push_back(part_of(own, r));
            terms.push_back(r == me ? sends.back() : at::empty_like(part_of(own, me)));
            sums.push_back(part_of(result, r));
        }
        swap_in_column(sends, terms);
        std::vector<const std::byte*> bytes;
        for (const at::Tensor& of_rank : terms) bytes.push_back(data_of(of_rank));
        combine_chunk(bytes, dtype, add, sums[me]);
        swap_in_column(std::vector<at::Tensor>(sums.size(), sums[me]), sums);
    }

    [[nodiscard]] at::Tensor reduce_over_hosts(const at::Tensor& mine) {
        at::Tensor result = at::empty_like(mine);
        const int64_t capacity = slices_.chunk.value / 4;
        std::vector<float> whole(static_cast<size_t>(capacity));
        for (int64_t begin = 0; begin < mine.numel(); begin += capacity) {
            const BucketId bucket = slices_.buckets[turn_];
            const Generation generation = ++generations_[turn_];
            turn_ = (turn_ + 1) % kSumBuckets;
            const int64_t numel = std::min(capacity, mine.numel() - begin);
            collectives_.await_free(bucket, generation);
            const std::span<float> own = collectives_.bucket(bucket);
            std::copy_n(mine.const_data_ptr<float>() + begin, numel, own.data());
            std::fill(own.begin() + numel, own.end(), 0.0F);
            collectives_.post(bucket, generation);
            collectives_.reduce(bucket, generation, 1.0F);
            collectives_.await_reduced(bucket, generation).copy_to(whole);
            collectives_.release(bucket, generation);
            std::copy_n(whole.data(), numel, result.data_ptr<float>() + begin);
        }
        return result;
    }

    Collectives& collectives_;
    TensorGroupSlices slices_;
    std::array<Generation, kRingPlaces> ring_generations_{};
    size_t ring_turn_ = 0;
    std::array<Generation, kSumBuckets> generations_{};
    size_t turn_ = 0;
};

}  // namespace

TensorGroupSlices add_tensor_group(ArenaLayout& arena, Bytes chunk) {
    DSL_CHECK(chunk.value >= 2 * kHeaderBytes && chunk.value % kHeaderBytes == 0,
              "chunks of {} bytes are not supported", chunk.value);
    TensorGroupSlices slices;
    slices.piece = std::min(chunk, kPieceMax);
    for (size_t i = 0; i < slices.ring.size(); ++i)
        slices.ring[i] = arena.add_bucket(fmt::format("tensor ring {}", i), slices.piece.value / 4);
    slices.chunk = chunk;
    for (size_t i = 0; i < slices.buckets.size(); ++i)
        slices.buckets[i] = arena.add_bucket(fmt::format("tensor group {}", i), chunk.value / 4);
    return slices;
}

std::unique_ptr<graph::TensorGroup> make_tensor_group(Collectives& collectives,
                                                      const TensorGroupSlices& slices) {
    return std::make_unique<CollectivesTensorGroup>(collectives, slices);
}

}  // namespace dslaunch::runtime
