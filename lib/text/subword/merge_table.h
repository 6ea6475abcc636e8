// The merges of a BPE model in one flat hash table. A merge joins two tokens to one. Merges are
// done in the order of their ranks. Built once, then only read.
#pragma once

#include <cstdint>
#include <vector>

#include "text/subword/vocabulary.h"

namespace dslaunch::text {

// The result of merging two neighbouring tokens.
struct MergeRule {
    uint32_t rank = UINT32_MAX;  // the lowest comes first
    int32_t id = kNoToken;       // of the merged token; kNoToken if there is no merge
};

// The table of the rules for pairs of token numbers.
class MergeTable {
  public:
    explicit MergeTable(size_t rules_count) {
        size_t slots = 16;
        while (slots < rules_count * 2) slots *= 2;
        slots_.resize(slots);
        for (size_t size = slots; size > 1; size /= 2) --shift_;
    }

    // Sets the rule for LEFT and RIGHT, replacing an earlier one.
    void set(int32_t left, int32_t right, MergeRule rule) {
        Slot& slot = slots_[slot_of(key_of(left, right))];
        slot = {key_of(left, right), rule};
    }
    // Returns the rule for LEFT and RIGHT; its id is kNoToken if there is none.
    [[nodiscard]] MergeRule find(int32_t left, int32_t right) const {
        return slots_[slot_of(key_of(left, right))].rule;
    }

  private:
    struct Slot {
        uint64_t key = UINT64_MAX;
        MergeRule rule;
    };
    static uint64_t key_of(int32_t left, int32_t right) {
        return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    }
    [[nodiscard]] size_t slot_of(uint64_t key) const {
        size_t at = static_cast<size_t>(key * 0x9E3779B97F4A7C15 >> shift_);
        while (slots_[at].key != key && slots_[at].key != UINT64_MAX)
            at = (at + 1) & (slots_.size() - 1);
        return at;
    }

    std::vector<Slot> slots_;
    int shift_ = 64;
};

}  // namespace dslaunch::text
