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
#include "base/range.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::runtime {

namespace {

constexpr int64_t kHeaderBytes = 128;        // two cache lines, so that elements stay aligned
constexpr size_t kShardedBytes = 256 << 10;  // a smaller sum between hosts goes whole to each rank
constexpr int64_t kElementBytes = 16;        // of the largest type

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

// Checks that another rank's tensor, of BYTES, is as long as OWN, with which it is combined.
void check_bytes(int64_t bytes, const at::Tensor& own) {
    DSL_CHECK(bytes == static_cast<int64_t>(own.nbytes()),
              "tensors of {} and {} bytes are combined by their ranks", bytes, own.nbytes());
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

at::Tensor CollectivesTensorGroup::empty_of(const Header& header, const at::Tensor& like) {
    DSL_CHECK(header.dims >= 0 && header.dims <= Header::kDimsMax,
              "a tensor of {} dimensions between ranks", header.dims);
    at::Tensor tensor =
        at::empty(at::IntArrayRef(header.sizes, static_cast<size_t>(header.dims)), like.options());
    DSL_CHECK(static_cast<int64_t>(tensor.nbytes()) == header.bytes,
              "another rank's tensor has {} bytes, {} in this one's type", header.bytes,
              tensor.nbytes());
    return tensor;
}

void CollectivesTensorGroup::check_sites(const std::vector<Header>& headers, int64_t own) const {
    for (const Header& header : headers)
        if (header.site != own)
            fail(ExitCode::kDiverged,
                 "tensor rank {} is at collective {} of the graph, another at {}: their graphs "
                 "differ",
                 rank(), own, header.site);
}

void CollectivesTensorGroup::share_on_host(const at::Tensor& mine, int64_t site, const Use& use) {
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
    std::vector<Header> headers(static_cast<size_t>(local_size()));
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

std::vector<at::Tensor> CollectivesTensorGroup::gather_by_messages(const at::Tensor& mine,
                                                                   int64_t site) {
    std::vector<std::string> messages = collectives_.all_gather(message_of(mine, site));
    std::vector<Header> headers(messages.size());
    for (size_t r = 0; r < messages.size(); ++r)
        std::memcpy(&headers[r], messages[r].data(), sizeof(Header));
    check_sites(headers, site);
    std::vector<at::Tensor> all;
    for (size_t r = 0; r < messages.size(); ++r) {
        all.push_back(empty_of(headers[r], mine));
        std::memcpy(data_of(all[r]), messages[r].data() + kHeaderBytes, all[r].nbytes());
        std::string().swap(messages[r]);  // large ones lie here once
    }
    return all;
}

bool CollectivesTensorGroup::in_columns() const {
    const std::vector<int>& sizes = collectives_.topology().node_sizes;
    return std::ranges::all_of(sizes, [&](int size) { return size == sizes.front(); });
}

std::vector<CollectivesTensorGroup::Header> CollectivesTensorGroup::meet_column(const Header& own) {
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

void CollectivesTensorGroup::swap_in_column(const std::vector<at::Tensor>& sends,
                                            std::vector<at::Tensor>& receives) {
    std::vector<std::span<const std::byte>> out(sends.size());
    std::vector<std::span<std::byte>> in(receives.size());
    for (size_t q = 0; q < sends.size(); ++q) {
        if (sends[q].defined()) out[q] = {data_of(sends[q]), sends[q].nbytes()};
        if (receives[q].defined()) in[q] = {data_of(receives[q]), receives[q].nbytes()};
    }
    collectives_.swap_over_hosts(out, in);
}

std::vector<at::Tensor> CollectivesTensorGroup::gather_in_columns(const at::Tensor& mine,
                                                                  int64_t site) {
    const std::vector<Header> headers = meet_column(header_of(mine, site));
    const auto host = static_cast<size_t>(collectives_.topology().node_rank);
    std::vector<at::Tensor> column;
    for (size_t q = 0; q < headers.size(); ++q)
        column.push_back(q == host ? mine : empty_of(headers[q], mine));
    swap_in_column(std::vector<at::Tensor>(column.size(), mine), column);
    if (local_size() == 1) return column;
    std::vector<at::Tensor> all;
    for (const at::Tensor& of_host : column)
        for (at::Tensor& of_rank : gather_on_host(of_host, site)) all.push_back(std::move(of_rank));
    return all;
}

std::vector<at::Tensor> CollectivesTensorGroup::exchange_in_columns(
    const std::vector<at::Tensor>& parts, int64_t site) {
    const auto ranks = static_cast<size_t>(local_size());
    const auto host = static_cast<size_t>(collectives_.topology().node_rank);
    std::vector<at::Tensor> sends, receives;  // by host: parts for, and from, the ranks there
    for (size_t q = 0; q < static_cast<size_t>(hosts()); ++q) {
        const auto first = parts.begin() + static_cast<std::ptrdiff_t>(q * ranks);
        sends.push_back(ranks == 1 ? on_host(*first)
                                   : on_host(at::stack(std::vector<at::Tensor>(
                                         first, first + static_cast<std::ptrdiff_t>(ranks)))));
        DSL_CHECK(sends.back().nbytes() == sends.front().nbytes(), "parts of {} and {} bytes",
                  sends.front().nbytes(), sends.back().nbytes());
        receives.push_back(q == host ? sends.back().clone() : at::empty_like(sends.back()));
    }
    const auto bytes = static_cast<int64_t>(sends.front().nbytes());
    for (const Header& header : meet_column(header_of(sends.front(), site)))
        DSL_CHECK(header.bytes == bytes, "tensor ranks exchange {} and {} bytes", header.bytes,
                  bytes);
    swap_in_column(sends, receives);
    if (ranks == 1) return receives;
    std::vector<at::Tensor> all;
    for (const at::Tensor& of_host : receives)
        for (at::Tensor& part : exchange_on_host(of_host.unbind(0), site))
            all.push_back(std::move(part));
    return all;
}

std::vector<at::Tensor> CollectivesTensorGroup::all_of(const at::Tensor& mine, int64_t site) {
    if (on_one_host()) return gather_on_host(mine, site);
    return in_columns() ? gather_in_columns(mine, site) : gather_by_messages(mine, site);
}

void CollectivesTensorGroup::combine_chunk(const std::vector<const std::byte*>& bytes,
                                           at::ScalarType dtype, const Combine& add,
                                           at::Tensor& into) {
    const int64_t numel = into.numel();
    if (dtype == at::kFloat && into.scalar_type() == at::kFloat && !add)
        return kernels::ordered_sum(terms_of<float>(bytes), 1.0F, into.data_ptr<float>(), numel);
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

// Each rank combines its part of the elements and sends it to the others.
void CollectivesTensorGroup::combine_shards(const at::Tensor& own, int64_t site,
                                            at::ScalarType dtype, const Combine& add,
                                            at::Tensor& result) {
    for (const Header& header : meet_column(header_of(own, site))) check_bytes(header.bytes, own);
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

// Calls ADD with the ranks' elements in order, in DTYPE.
at::Tensor CollectivesTensorGroup::combine(const at::Tensor& mine, int64_t site,
                                           at::ScalarType dtype, const Combine& add) {
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

at::Tensor CollectivesTensorGroup::sum(const at::Tensor& mine, int64_t site) {
    const bool narrow = at::isReducedFloatingType(mine.scalar_type());
    const at::ScalarType dtype = narrow ? at::kFloat : mine.scalar_type();
    // A tensor that fills buckets is summed there if hosts have several ranks.
    const bool reduces =
        dtype == at::kFloat && mine.numel() * 4 >= slices_.chunk.value && !in_one_column();
    if (on_one_host() || !reduces) return combine(mine, site, dtype, {});
    // The gather checks that all ranks are at the same collective.
    static_cast<void>(all_of(at::empty({0}), site));
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
    std::vector<at::Tensor> all = all_of(on_host(mine), site);
    for (at::Tensor& tensor : all) tensor = tensor.to(mine.device());
    return all;
}

std::vector<at::Tensor> CollectivesTensorGroup::gather_on_host(const at::Tensor& mine,
                                                               int64_t site) {
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

std::vector<at::Tensor> CollectivesTensorGroup::exchange(const std::vector<at::Tensor>& parts,
                                                         int64_t site) {
    std::vector<at::Tensor> all;
    if (on_one_host() || in_columns()) {
        all = on_one_host() ? exchange_on_host(parts, site) : exchange_in_columns(parts, site);
    } else {
        for (const at::Tensor& of_rank : gather_by_messages(on_host(at::stack(parts)), site)) {
            DSL_CHECK(of_rank.size(0) == size(), "a tensor rank exchanges other shapes");
            all.push_back(of_rank.select(0, rank()));
        }
    }
    for (at::Tensor& tensor : all) tensor = tensor.to(parts.front().device());
    return all;
}

// A place has a piece of the part for each rank.
std::vector<at::Tensor> CollectivesTensorGroup::exchange_on_host(
    const std::vector<at::Tensor>& parts, int64_t site) {
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
            DSL_CHECK(chunk.headers[r].bytes == part_bytes, "local rank {} exchanges other shapes",
                      r);
            if (r != me && chunk.begin < part_bytes)
                std::memcpy(data_of(all[r]) + chunk.begin,
                            chunk.bytes[r] + static_cast<int64_t>(me) * capacity,
                            piece_bytes(chunk.begin));
        }
    });
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
        share_on_host(own, site, [&](const Chunk& chunk, int64_t capacity) {
            std::ranges::for_each(chunk.headers, require_equal);
            std::memcpy(data_of(theirs) + chunk.begin, chunk.bytes[before],
                        static_cast<size_t>(std::min(capacity, bytes - chunk.begin)));
        });
    } else if (in_one_column()) {
        require_equal(meet_column(header_of(own, site))[before]);
        const auto ranks = static_cast<size_t>(size());
        std::vector<at::Tensor> sends(ranks), receives(ranks);
        sends[static_cast<size_t>((rank() + 1) % size())] = own;
        receives[before] = theirs;
        swap_in_column(sends, receives);
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
