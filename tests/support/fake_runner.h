// A decoder whose cache contains tokens. The next token is different after a wrong page, after a
// position that was not computed, and after a position computed for a text of another length
// (models of long contexts depend on this length).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "decoder/decode/batch.h"
#include "support/catch.h"

namespace dslaunch::test {

inline constexpr int32_t kFakeVocabulary = 97;

// Returns the likeliest token after TEXT.
inline int32_t successor(const std::vector<int32_t>& text) {
    uint64_t hash = 7;
    for (const int32_t token : text)
        hash = (hash * 31 + static_cast<uint64_t>(token) + 1) % 1'000'003;
    return static_cast<int32_t>(hash % kFakeVocabulary);
}

// Returns the entry of TOKEN in the cache. LENGTH: the number of tokens in the text for which it
// was computed.
inline int32_t held_of(int32_t token, int64_t length) {
    constexpr int64_t kLate = 60;
    return length > kLate ? token + kFakeVocabulary : token;
}

inline std::vector<int32_t> continuation(const std::vector<int32_t>& prompt, int64_t tokens) {
    std::vector<int32_t> held, made;
    for (const int32_t token : prompt) held.push_back(held_of(token, std::ssize(prompt)));
    for (int64_t i = 0; i < tokens; ++i) {
        made.push_back(successor(held));
        held.push_back(held_of(made.back(), std::ssize(held) + 1));
    }
    return made;
}

class FakeRunner : public decoder::BatchRunner {
  public:
    FakeRunner(int64_t pages, int64_t rows_max, int64_t context)
        : cache_(static_cast<size_t>(pages * decoder::kPagePositions), -1),
          rows_max_(rows_max),
          context_(context) {}

    int64_t vocabulary() const override { return kFakeVocabulary; }
    int64_t context() const override { return context_; }
    int64_t pages() const override { return std::ssize(cache_) / decoder::kPagePositions; }
    int64_t rows_max() const override { return rows_max_; }

    std::span<float> run(const decoder::Batch& given) override {
        const decoder::Batch batch = decoder::parse_batch(decoder::batch_bytes(given));
        most_rows = std::max(most_rows, std::ssize(batch.rows));
        for (const decoder::BatchRow& row : batch.rows)
            at(batch, row, row.position) = held_of(row.token, row.length);
        logits_.clear();
        for (const decoder::BatchRow& row : batch.rows) {
            if (!row.wants_logits) continue;
            std::vector<int32_t> text;
            for (int32_t p = 0; p <= row.position; ++p) text.push_back(at(batch, row, p));
            std::vector<float> logits(kFakeVocabulary, 0);
            logits[static_cast<size_t>(successor(text))] = 1;
            logits_.insert(logits_.end(), logits.begin(), logits.end());
        }
        return logits_;
    }

    int64_t most_rows = 0;

  private:
    int32_t& at(const decoder::Batch& batch, const decoder::BatchRow& row, int32_t position) {
        const auto& pages = batch.sequences.at(static_cast<size_t>(row.sequence)).pages;
        const int32_t page = pages.at(static_cast<size_t>(position / decoder::kPagePositions));
        return cache_.at(static_cast<size_t>(page * decoder::kPagePositions +
                                             position % decoder::kPagePositions));
    }

    std::vector<int32_t> cache_;
    std::vector<float> logits_;
    int64_t rows_max_, context_;
};

}  // namespace dslaunch::test
