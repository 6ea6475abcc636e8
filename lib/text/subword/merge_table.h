// The merges of a BPE model in one flat table: two tokens that become one, and how early. Built
// once, then only read.
#pragma once

#include <cstdint>
#include <vector>

#include "text/subword/vocabulary.h"

namespace dslaunch::text {

struct MergeRule {
    uint32_t rank = UINT32_MAX;  // the lowest comes first
    int32_t id = kNoToken;       // of the merged token; kNoToken: no merge
};

class MergeTable {
  public:
    explicit MergeTable(size_t rules_count) {
        size_t slots = 16;
        while (slots < rules_count * 2) slots *= 2;
        slots_.resize(slots);
        for (size_t size = slots; size > 1; size /= 2) --shift_;
    }

    // Sets a rule, which replaces an earlier one for the same two.
    void set(int32_t left, int32_t right, MergeRule rule) {
        Slot& slot = slots_[slot_of(key_of(left, right))];
        slot = {key_of(left, right), rule};
    }
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
