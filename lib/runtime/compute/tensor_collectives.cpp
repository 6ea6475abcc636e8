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
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::runtime {

namespace {

constexpr int64_t kHeaderBytes = 128;  // two cache lines, so that elements stay aligned
constexpr int64_t kElementBytes = 16;  // of the largest type

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

// Returns a view of NUMEL elements of DTYPE at BYTES, which may only be read.
at::Tensor view_of(const std::byte* bytes, int64_t numel, at::ScalarType dtype) {
    return at::from_blob(const_cast<std::byte*>(bytes), {numel}, dtype);
}

}  // namespace

CollectivesTensorGroup::Slices CollectivesTensorGroup::add_slices(ArenaLayout& arena, Bytes chunk) {
    DSL_CHECK(chunk.value >= 2 * kHeaderBytes && chunk.value % kHeaderBytes == 0,
              "chunks of {} bytes", chunk.value);
    Slices slices;
    slices.piece = std::min(chunk, kPieceMax);
    for (int i = 0; i < kPlaces; ++i)
        slices.ring[i] = arena.add_bucket(fmt::format("tensor ring {}", i), slices.piece.value / 4);
    slices.chunk = chunk;
    for (int i = 0; i < kBuckets; ++i)
        slices.buckets[i] = arena.add_bucket(fmt::format("tensor group {}", i), chunk.value / 4);
    return slices;
}

CollectivesTensorGroup::CollectivesTensorGroup(Collectives& collectives, const Slices& slices)
    : collectives_(collectives), slices_(slices) {
    static_assert(sizeof(Header) <= kHeaderBytes);
}

CollectivesTensorGroup::Header CollectivesTensorGroup::header_of(const at::Tensor& mine,
                                                                 int64_t site) {
    DSL_CHECK(mine.dim() <= Header::kDimsMax, "a tensor of {} dimensions between ranks",
              mine.dim());
    Header header;
    header.site = site;
    header.bytes = static_cast<int64_t>(mine.nbytes());
    header.dims = mine.dim();
    std::copy(mine.sizes().begin(), mine.sizes().end(), header.sizes);
    return header;
}

void CollectivesTensorGroup::check_sites(const std::vector<Header>& headers, int64_t own) const {
    for (const Header& header : headers)
        if (header.site != own)
            fail(ExitCode::kDiverged,
                 "tensor rank {} is at collective {} of the graph, another at {}: their graphs "
                 "differ",
                 rank(), own, header.site);
}

void CollectivesTensorGroup::share(const at::Tensor& mine, int64_t site, const Use& use) {
    if (!on_one_host()) return share_by_messages(mine, site, use);
    const Header own = header_of(mine, site);
    const std::byte* const bytes = data_of(mine);
    const auto fill = [&](int64_t begin, std::byte* place) {
        std::memcpy(place, bytes + begin, static_cast<size_t>(std::min(room(), own.bytes - begin)));
    };
    pass_ring(own, room(), fill, use);
}

int64_t CollectivesTensorGroup::room() const {
    return slices_.piece.value - kHeaderBytes;
}

void CollectivesTensorGroup::pass_ring(const Header& own, int64_t capacity, const Fill& fill,
                                       const Use& use) {
    struct Written {
        BucketId bucket;
        Generation generation = 0;
    };
    // A place is written again once all have read it: one is left between those that are written
    // and those that are read.
    constexpr int64_t kAhead = kPlaces - 2;
    std::array<Written, kPlaces> ring;
    std::vector<Header> headers(static_cast<size_t>(size()));
    int64_t most = own.bytes;  // of any rank; the others' are known with the first piece
    int64_t written = 0;       // pieces
    const auto write_next = [&] {
        const int64_t begin = written * capacity;
        const auto turn = ring_turn_;
        ring_turn_ = (ring_turn_ + 1) % kPlaces;
        Written& now = ring[static_cast<size_t>(written++ % kPlaces)];
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
        const Written& now = ring[static_cast<size_t>(piece % kPlaces)];
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

std::string CollectivesTensorGroup::message_of(const at::Tensor& mine, int64_t site) {
    const Header own = header_of(mine, site);
    std::string message(kHeaderBytes + mine.nbytes(), '\0');
    std::memcpy(message.data(), &own, sizeof own);
    if (own.bytes > 0) std::memcpy(message.data() + kHeaderBytes, data_of(mine), mine.nbytes());
    return message;
}

void CollectivesTensorGroup::share_by_messages(const at::Tensor& mine, int64_t site,
                                               const Use& use) {
    const std::vector<std::string> all = collectives_.all_gather(message_of(mine, site));
    std::vector<Header> headers(all.size());
    std::vector<const std::byte*> bytes;
    int64_t most = 0;
    for (size_t r = 0; r < all.size(); ++r) {
        std::memcpy(&headers[r], all[r].data(), sizeof(Header));
        bytes.push_back(reinterpret_cast<const std::byte*>(all[r].data()) + kHeaderBytes);
        most = std::max(most, headers[r].bytes);
    }
    check_sites(headers, site);
    use({0, headers, bytes}, std::max<int64_t>(most, 1));
}

// Calls ADD with the ranks' elements in order, in DTYPE.
at::Tensor CollectivesTensorGroup::combine(const at::Tensor& mine, int64_t site,
                                           at::ScalarType dtype, const Combine& add) {
    const at::Tensor own = on_host(mine);
    const auto element = static_cast<int64_t>(own.element_size());
    at::Tensor result = at::empty(own.sizes(), own.options());
    share(own, site, [&](const Chunk& chunk, int64_t capacity) {
        const int64_t numel = std::min(capacity, chunk.headers[0].bytes - chunk.begin) / element;
        if (numel <= 0) return;
        at::Tensor into = view_of(data_of(result) + chunk.begin, numel, own.scalar_type());
        if (dtype == at::kFloat && own.scalar_type() == at::kFloat && !add)
            return kernels::ordered_sum(terms_of<float>(chunk.bytes), 1.0F, into.data_ptr<float>(),
                                        numel);
        if (dtype == at::kFloat && at::isReducedFloatingType(own.scalar_type()) && !add)
            return kernels::ordered_half_sum(
                terms_of<uint16_t>(chunk.bytes), static_cast<uint16_t*>(into.data_ptr()), numel,
                own.scalar_type() == at::kHalf ? DType::kF16 : DType::kBF16);
        at::Tensor total = view_of(chunk.bytes[0], numel, own.scalar_type()).to(dtype, false, true);
        for (size_t r = 1; r < chunk.bytes.size(); ++r) {
            const at::Tensor next = view_of(chunk.bytes[r], numel, own.scalar_type());
            if (add) {
                add(total, next);
            } else {
                total.add_(next);
            }
        }
        into.copy_(total);
    });
    return result.to(mine.device());
}

at::Tensor CollectivesTensorGroup::sum(const at::Tensor& mine, int64_t site) {
    const bool narrow = at::isReducedFloatingType(mine.scalar_type());
    const at::ScalarType dtype = narrow ? at::kFloat : mine.scalar_type();
    // A tensor that fills buckets is summed in place. A smaller one is cheaper as a message.
    const bool reduces = dtype == at::kFloat && mine.numel() * 4 >= slices_.chunk.value;
    if (on_one_host() || !reduces) return combine(mine, site, dtype, {});
    // The gather checks that all ranks are at the same collective.
    static_cast<void>(gather(at::empty({0}), site));
    return reduce_over_hosts(on_host(mine).to(at::kFloat)).to(mine.options());
}

at::Tensor CollectivesTensorGroup::reduce_over_hosts(const at::Tensor& mine) {
    at::Tensor result = at::empty_like(mine);
    const int64_t capacity = slices_.chunk.value / 4;
    std::vector<float> whole(static_cast<size_t>(capacity));
    for (int64_t begin = 0; begin < mine.numel(); begin += capacity) {
        const BucketId bucket = slices_.buckets[turn_];
        const Generation generation = ++generations_[turn_];
        turn_ = (turn_ + 1) % kBuckets;
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

at::Tensor CollectivesTensorGroup::max(const at::Tensor& mine, int64_t site) {
    return combine(mine, site, mine.scalar_type(), [](at::Tensor& into, const at::Tensor& next) {
        into = at::maximum(into, next);
    });
}

std::vector<at::Tensor> CollectivesTensorGroup::gather(const at::Tensor& mine, int64_t site) {
    const at::Tensor own = on_host(mine);
    std::vector<at::Tensor> all;
    share(own, site, [&](const Chunk& chunk, int64_t capacity) {
        for (size_t r = 0; r < chunk.bytes.size(); ++r) {
            const Header& header = chunk.headers[r];
            const bool is_own = static_cast<int>(r) == rank();
            if (chunk.begin == 0)
                all.push_back(
                    is_own ? own
                           : at::empty(at::IntArrayRef(header.sizes, header.dims), own.options()));
            if (is_own) continue;
            const int64_t bytes = std::min(capacity, header.bytes - chunk.begin);
            if (bytes > 0)
                std::memcpy(data_of(all[r]) + chunk.begin, chunk.bytes[r],
                            static_cast<size_t>(bytes));
        }
    });
    for (at::Tensor& tensor : all) tensor = tensor.to(mine.device());
    return all;
}

std::vector<at::Tensor> CollectivesTensorGroup::exchange(const std::vector<at::Tensor>& parts,
                                                         int64_t site) {
    if (on_one_host()) return exchange_on_host(parts, site);
    const at::Tensor own = on_host(at::stack(parts));
    const int64_t part_bytes = static_cast<int64_t>(own.nbytes()) / size();
    const int64_t mine_begin = rank() * part_bytes;
    at::Tensor all = at::empty_like(own);
    share(own, site, [&](const Chunk& chunk, int64_t capacity) {
        const int64_t begin = std::max(chunk.begin, mine_begin);
        const int64_t end = std::min(chunk.begin + capacity, mine_begin + part_bytes);
        if (begin >= end) return;
        for (size_t r = 0; r < chunk.bytes.size(); ++r) {
            DSL_CHECK(chunk.headers[r].bytes == static_cast<int64_t>(own.nbytes()),
                      "tensor rank {} exchanges other shapes", r);
            std::memcpy(data_of(all) + static_cast<int64_t>(r) * part_bytes + begin - mine_begin,
                        chunk.bytes[r] + (begin - chunk.begin), static_cast<size_t>(end - begin));
        }
    });
    return all.to(parts.front().device()).unbind(0);
}

// A place has a piece of the part for each rank.
std::vector<at::Tensor> CollectivesTensorGroup::exchange_on_host(
    const std::vector<at::Tensor>& parts, int64_t site) {
    const auto me = static_cast<size_t>(rank());
    std::vector<at::Tensor> own, all;
    for (const at::Tensor& part : parts) {
        own.push_back(on_host(part));
        all.push_back(at::empty_like(own.back()));
    }
    const auto part_bytes = static_cast<int64_t>(own.front().nbytes());
    const int64_t capacity = room() / size() / kElementBytes * kElementBytes;
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
            DSL_CHECK(chunk.headers[r].bytes == part_bytes, "tensor rank {} exchanges other shapes",
                      r);
            if (r != me && chunk.begin < part_bytes)
                std::memcpy(data_of(all[r]) + chunk.begin,
                            chunk.bytes[r] + static_cast<int64_t>(me) * capacity,
                            piece_bytes(chunk.begin));
        }
    });
    for (at::Tensor& tensor : all) tensor = tensor.to(parts.front().device());
    return all;
}

at::Tensor CollectivesTensorGroup::shift(const at::Tensor& mine, int64_t site) {
    const at::Tensor own = on_host(mine);
    const auto bytes = static_cast<int64_t>(own.nbytes());
    const auto before = static_cast<size_t>(rank_before());
    at::Tensor theirs = at::empty_like(own);
    const auto require_equal = [&](const Header& header) {
        DSL_CHECK(header.bytes == bytes, "tensor rank {} shifts {} bytes, rank {} {}", before,
                  header.bytes, rank(), bytes);
    };
    if (on_one_host()) {
        share(own, site, [&](const Chunk& chunk, int64_t capacity) {
            require_equal(chunk.headers[before]);
            std::memcpy(data_of(theirs) + chunk.begin, chunk.bytes[before],
                        static_cast<size_t>(std::min(capacity, bytes - chunk.begin)));
        });
    } else {
        const std::string message = collectives_.shift(message_of(own, site));
        Header header;
        std::memcpy(&header, message.data(), sizeof header);
        check_sites({header}, site);
        require_equal(header);
        std::memcpy(data_of(theirs), message.data() + kHeaderBytes, static_cast<size_t>(bytes));
    }
    return theirs.to(mine.device());
}

}  // namespace dslaunch::runtime
