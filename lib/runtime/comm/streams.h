// Streams of elements that lie in pieces of memory, and the turns in which chunks of them are
// prepared, sent and taken in beside each other. Data path: collectives -> [here] -> host exchange.
// Threads: as said at in_turns.
#pragma once

#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "base/range.h"

namespace dslaunch::runtime {

// Elements that follow each other in a stream, as they lie in memory.
template <typename T>
using PiecesOf = std::vector<std::span<T>>;
using Pieces = PiecesOf<float>;

template <typename T>
[[nodiscard]] int64_t numel_of(const PiecesOf<T>& pieces) {
    int64_t numel = 0;
    for (const std::span<T>& piece : pieces) numel += std::ssize(piece);
    return numel;
}

// Returns the part of the stream that lies in WANTED.
template <typename T>
[[nodiscard]] PiecesOf<T> cut(const PiecesOf<T>& stream, const Range& wanted) {
    PiecesOf<T> result;
    int64_t begin = 0;
    for (const std::span<T>& piece : stream) {
        const Range both = intersect({begin, std::ssize(piece)}, wanted);
        if (both.numel > 0)
            result.push_back(piece.subspan(static_cast<size_t>(both.begin - begin),
                                           static_cast<size_t>(both.numel)));
        begin += std::ssize(piece);
    }
    return result;
}

// The chunk of each stream. It bounds the memory to two chunks to send and two to receive, for each
// other host. It is of whole blocks of packed values (wire_bytes).
inline constexpr int64_t kChunkNumel = 1 << 20;
[[nodiscard]] constexpr int64_t chunks_of(int64_t numel) {
    return (numel + kChunkNumel - 1) / kChunkNumel;
}
[[nodiscard]] constexpr Range chunk_range(int64_t chunk) {
    return {chunk * kChunkNumel, kChunkNumel};
}

// Calls before(c), during(c) and after(c) for every chunk c, in this order. While during(c) runs,
// after(c - 1) and then before(c + 1) run in another thread, if there is one to be had. Buffers of
// two turns are enough. After an error of during(c), after(c - 1) has ended.
template <typename Before, typename During, typename After>
void in_turns(int64_t chunks, const Before& before, const During& during, const After& after) {
    if (chunks == 0) return;
    before(0);
    for (int64_t c = 0; c < chunks; ++c) {
        const auto beside = [&, c] {
            if (c > 0) after(c - 1);
            if (c + 1 < chunks) before(c + 1);
        };
        std::future<void> other;
        if (chunks > 1) other = std::async(std::launch::async | std::launch::deferred, beside);
        during(c);
        if (other.valid()) other.get();
    }
    after(chunks - 1);
}

}  // namespace dslaunch::runtime
