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

at::Tensor on_host(const at::Tensor& tensor) {
    return tensor.detach().to(at::kCPU).contiguous();
}

const std::byte* data_of(const at::Tensor& tensor) {
    return static_cast<const std::byte*>(tensor.const_data_ptr());
}

std::byte* data_of(at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
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
    return on_one_host() ? share_on_host(mine, site, use) : share_by_messages(mine, site, use);
}

void CollectivesTensorGroup::share_on_host(const at::Tensor& mine, int64_t site, const Use& use) {
    const int64_t capacity = slices_.chunk.value - kHeaderBytes;
    const Header own = header_of(mine, site);
    std::vector<Header> headers(static_cast<size_t>(size()));
    int64_t most = own.bytes;
    for (int64_t begin = 0; begin == 0 || begin < most; begin += capacity) {
        const BucketId bucket = slices_.buckets[turn_];
        const Generation generation = ++generations_[turn_];
        turn_ = (turn_ + 1) % kBuckets;
        collectives_.await_free(bucket, generation);
        std::byte* const place = std::as_writable_bytes(collectives_.bucket(bucket)).data();
        if (begin == 0) std::memcpy(place, &own, sizeof own);
        if (begin < own.bytes)
            std::memcpy(place + kHeaderBytes, data_of(mine) + begin,
                        static_cast<size_t>(std::min(capacity, own.bytes - begin)));
        collectives_.post(bucket, generation);
        std::vector<const std::byte*> bytes;
        for (const float* source : collectives_.await_sources(bucket, generation))
            bytes.push_back(reinterpret_cast<const std::byte*>(source));
        if (begin == 0) {
            for (size_t r = 0; r < headers.size(); ++r) {
                std::memcpy(&headers[r], bytes[r], sizeof own);
                most = std::max(most, headers[r].bytes);
            }
            check_sites(headers, site);
        }
        for (const std::byte*& place_of_rank : bytes) place_of_rank += kHeaderBytes;
        use({begin, headers, bytes}, capacity);
        collectives_.release(bucket, generation);
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
        if (dtype == at::kFloat && own.scalar_type() == at::kFloat && !add) {
            std::vector<const float*> terms;
            for (const std::byte* bytes : chunk.bytes)
                terms.push_back(reinterpret_cast<const float*>(bytes));
            return kernels::ordered_sum(terms, 1.0F, into.data_ptr<float>(), numel);
        }
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
            if (chunk.begin == 0)
                all.push_back(at::empty(at::IntArrayRef(header.sizes, header.dims), own.options()));
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
