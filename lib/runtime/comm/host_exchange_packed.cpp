// The exchanges of packed values. While one chunk is sent, the next chunk is packed and the
// previous chunk is unpacked.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/flat_optimizer.h"
#include "kernels/packing.h"
#include "runtime/comm/host_exchange.h"

namespace dslaunch::runtime {

namespace {

// Returns a different seed for each chunk that a host sends to another.
uint32_t seed_of(uint32_t seed, int from, int to, int64_t chunk) {
    for (const int64_t part : {int64_t{from}, int64_t{to}, chunk})
        seed = (seed ^ static_cast<uint32_t>(part)) * 0x9E3779B1U + 0x7F4A7C15U;
    return seed;
}

// Returns the number of elements in chunk CHUNK of a stream of NUMEL elements.
int64_t chunk_numel(int64_t numel, int64_t chunk) {
    return intersect({0, numel}, chunk_range(chunk)).numel;
}

size_t packed_size(WirePacking packing, int64_t numel) {
    return static_cast<size_t>(wire_bytes(packing, numel, sizeof(float)));
}

// Copies the elements of PIECES, of DTYPE, to VALUES as fp32.
void load(const PiecesOf<std::byte>& pieces, DType dtype, std::vector<float>& values) {
    float* into = values.data();
    for (const std::span<std::byte>& piece : pieces) {
        const int64_t numel = std::ssize(piece) / dtype_bytes(dtype);
        if (dtype == DType::kF32) {
            std::memcpy(into, piece.data(), piece.size());
        } else {
            kernels::from_half(reinterpret_cast<const uint16_t*>(piece.data()), into, numel, dtype);
        }
        into += numel;
    }
}

void store(const float* values, DType dtype, const PiecesOf<std::byte>& pieces) {
    for (const std::span<std::byte>& piece : pieces) {
        const int64_t numel = std::ssize(piece) / dtype_bytes(dtype);
        if (dtype == DType::kF32) {
            std::memcpy(piece.data(), values, piece.size());
        } else {
            kernels::to_half(values, reinterpret_cast<uint16_t*>(piece.data()), numel, dtype);
        }
        values += numel;
    }
}

// Replaces values that are not finite by 0, so that one bad step does not leave an error forever.
void keep_finite(std::span<float> errors) {
    for (float& error : errors)
        if (!std::isfinite(error)) error = 0;
}

}  // namespace

// Makes room for BYTES of packed values from NODE.
void HostExchange::receive_packed(Turn& turn, int node, size_t bytes) {
    turn.packed_in[node].resize(bytes);
    turn.receives[node] = turn.packed_in[node];
}

// Packs THEIRS and appends the result to OUT.
void HostExchange::pack_terms(const Pieces& theirs, std::vector<std::byte>& out,
                              const ReduceCoding& coding) {
    const int64_t numel = numel_of(theirs);
    if (numel == 0) return;
    values_.resize(static_cast<size_t>(numel));
    float* into = values_.data();
    for (const std::span<float>& piece : theirs) into = std::copy(piece.begin(), piece.end(), into);
    for (size_t i = 0; i < coding.errors.size(); ++i) values_[i] += coding.errors[i];
    const size_t begin = out.size();
    out.resize(begin + packed_size(coding.packing, numel));
    const std::span<std::byte> packed = std::span(out).subspan(begin);
    const bool keeps_errors = !coding.errors.empty();
    kernels::pack_for_wire(coding.packing, values_, packed, {!keeps_errors, coding.seed});
    if (!keeps_errors) return;
    rounded_.resize(static_cast<size_t>(numel));
    kernels::unpack_from_wire(coding.packing, packed, rounded_);
    for (size_t i = 0; i < coding.errors.size(); ++i) coding.errors[i] = values_[i] - rounded_[i];
    keep_finite(coding.errors);
}

// Fills the terms of a chunk from the received bytes: first EXACT_NUMEL elements that are copied,
// then PACKED_NUMEL elements that are unpacked.
void HostExchange::unpack_terms(Turn& turn, int64_t exact_numel, int64_t packed_numel,
                                WirePacking packing) {
    const size_t exact_bytes = static_cast<size_t>(exact_numel) * sizeof(float);
    for (int node = 0; node < node_count_; ++node) {
        if (node == node_) continue;
        std::vector<float>& terms = turn.terms[node];
        terms.resize(static_cast<size_t>(exact_numel + packed_numel));
        const std::span<const std::byte> in = turn.packed_in[node];
        std::memcpy(terms.data(), in.data(), exact_bytes);
        kernels::unpack_from_wire(packing, in.subspan(exact_bytes),
                                  std::span(terms).subspan(static_cast<size_t>(exact_numel)));
    }
}

void HostExchange::reduce_packed(const std::vector<OwnerStream>& streams, float scale,
                                 const ReduceCoding& coding) {
    DSL_CHECK(std::ssize(streams) == node_count_, "{} streams were given for {} hosts",
              streams.size(), node_count_);
    std::vector<int64_t> errors_begin;
    int64_t longest = 1;  // at least 1, since exact values are sent with the first chunk
    int64_t errors = 0;
    for (int node = 0; node < node_count_; ++node) {
        const int64_t numel = numel_of(streams[node].packed);
        longest = std::max(longest, numel);
        errors_begin.push_back(errors);
        if (node != node_) errors += numel;
    }
    DSL_CHECK(coding.errors.empty() || std::ssize(coding.errors) == errors,
              "there are errors for {} elements, but {} are sent", coding.errors.size(), errors);
    const OwnerStream& own = streams[node_];
    const auto exact_of = [](const OwnerStream& stream, int64_t c) {
        return c == 0 ? stream.exact : Pieces{};
    };
    const auto pack = [&](int64_t c) {
        Turn& now = turn(c);
        for (int node = 0; node < node_count_; ++node) {
            if (node == node_) continue;
            std::vector<std::byte>& out = now.packed_out[node];
            out.clear();
            for (const std::span<float>& piece : exact_of(streams[node], c)) {
                const auto bytes = std::as_bytes(piece);
                out.insert(out.end(), bytes.begin(), bytes.end());
            }
            const Pieces theirs = cut(streams[node].packed, chunk_range(c));
            ReduceCoding of_chunk = coding;
            of_chunk.seed = seed_of(coding.seed, node_, node, c);
            if (!coding.errors.empty())
                of_chunk.errors = coding.errors.subspan(
                    static_cast<size_t>(errors_begin[node] + chunk_range(c).begin),
                    static_cast<size_t>(numel_of(theirs)));
            pack_terms(theirs, out, of_chunk);
            now.sends[node] = out;
        }
        const size_t exact_bytes = static_cast<size_t>(numel_of(exact_of(own, c))) * sizeof(float);
        const size_t bytes =
            exact_bytes + packed_size(coding.packing, chunk_numel(numel_of(own.packed), c));
        for (int node = 0; node < node_count_; ++node)
            if (node != node_) receive_packed(now, node, bytes);
    };
    in_turns(
        chunks_of(longest), pack, [&](int64_t c) { swap(turn(c).sends, turn(c).receives); },
        [&](int64_t c) {
            Pieces terms = exact_of(own, c);
            const Pieces packed = cut(own.packed, chunk_range(c));
            unpack_terms(turn(c), numel_of(terms), numel_of(packed), coding.packing);
            terms.insert(terms.end(), packed.begin(), packed.end());
            add_terms(terms, turn(c).terms, scale);
        });
}

// Replaces PIECES by their sums as reduce() does: host q sums sub-stripe q of all hosts and sends
// the sums back.
void HostExchange::reduce_packed_for_all(const Pieces& pieces, float scale,
                                         const ReduceCoding& coding) {
    DSL_CHECK(is_half(coding.packing) && coding.errors.empty(),
              "this packing would round sums twice");
    const int64_t numel = numel_of(pieces);
    std::vector<OwnerStream> terms;
    std::vector<PiecesOf<std::byte>> sums(static_cast<size_t>(node_count_));
    for (int node = 0; node < node_count_; ++node) {
        terms.push_back({{}, cut(pieces, sub_stripe(numel, node))});
        for (const std::span<float>& piece : terms.back().packed)
            sums[node].push_back(std::as_writable_bytes(piece));
    }
    reduce_packed(terms, scale, coding);
    gather_packed(sums, {coding.packing, DType::kF32});
}

void HostExchange::gather_packed(const std::vector<PiecesOf<std::byte>>& pieces,
                                 const GatherCoding& coding) {
    const int64_t element = dtype_bytes(coding.dtype);
    int64_t longest = 0;
    for (const PiecesOf<std::byte>& stream : pieces)
        longest = std::max(longest, numel_of(stream) / element);
    const auto chunk_of = [&](int node, int64_t c) {
        const Range range = chunk_range(c);
        return cut(pieces[node], {range.begin * element, range.numel * element});
    };
    const auto unpack = [&](const std::vector<std::byte>& packed, const PiecesOf<std::byte>& into) {
        rounded_.resize(static_cast<size_t>(numel_of(into) / element));
        kernels::unpack_from_wire(coding.packing, packed, rounded_);
        store(rounded_.data(), coding.dtype, into);
    };
    const auto pack = [&](int64_t c) {
        Turn& now = turn(c);
        const PiecesOf<std::byte> mine = chunk_of(node_, c);
        const int64_t numel = numel_of(mine) / element;
        values_.resize(static_cast<size_t>(numel));
        load(mine, coding.dtype, values_);
        std::vector<std::byte>& out = now.packed_out[node_];
        out.resize(packed_size(coding.packing, numel));
        kernels::pack_for_wire(coding.packing, values_, out);
        unpack(out, mine);
        for (int node = 0; node < node_count_; ++node) {
            if (node == node_) continue;
            now.sends[node] = out;
            receive_packed(now, node,
                           packed_size(coding.packing, numel_of(chunk_of(node, c)) / element));
        }
    };
    in_turns(
        chunks_of(longest), pack, [&](int64_t c) { swap(turn(c).sends, turn(c).receives); },
        [&](int64_t c) {
            for (int node = 0; node < node_count_; ++node)
                if (node != node_) unpack(turn(c).packed_in[node], chunk_of(node, c));
        });
}

}  // namespace dslaunch::runtime
