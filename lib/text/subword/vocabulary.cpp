#include "text/subword/vocabulary.h"

#include <cstring>

#include "base/error.h"

namespace dslaunch::text {

uint64_t hash_of(std::string_view text) {
    constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
    uint64_t hash = text.size() * kFactor;
    const auto mix = [&](uint64_t word) {
        hash = (hash ^ word) * 0xD6E8FEB86659FD93;
        hash ^= hash >> 32;
    };
    while (text.size() >= 8) {
        uint64_t word;
        std::memcpy(&word, text.data(), 8);
        mix(word);
        text.remove_prefix(8);
    }
    uint64_t last = 0;
    std::memcpy(&last, text.data(), text.size());
    mix(last);
    return hash * kFactor;
}

size_t Vocabulary::slot_of(std::string_view text, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    const auto high = static_cast<uint32_t>(hash >> 32);
    size_t at = hash & mask;
    while (slots_[at].id != kNoToken &&
           (slots_[at].hash != high || view(places_[static_cast<size_t>(slots_[at].id)]) != text))
        at = (at + 1) & mask;
    return at;
}

void Vocabulary::grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.size() * 2, Slot{});
    for (const Slot& slot : old) {
        if (slot.id == kNoToken) continue;
        const std::string_view text = view(places_[static_cast<size_t>(slot.id)]);
        slots_[slot_of(text, hash_of(text))] = slot;
    }
}

void Vocabulary::store(std::string_view text, int32_t id) {
    if (texts_.size() + text.size() > UINT32_MAX)
        fail(ExitCode::kInput,
             "the tokens of a vocabulary need more than 4 GiB, which is not supported");
    if (static_cast<size_t>(id) >= places_.size()) places_.resize(static_cast<size_t>(id) + 1);
    places_[static_cast<size_t>(id)] = {static_cast<uint32_t>(texts_.size()),
                                        static_cast<int32_t>(text.size())};
    texts_ += text;
    ++tokens_count_;
}

bool Vocabulary::add(std::string_view text, int32_t id) {
    if (text_of(id) || find(text) != kNoToken) return false;
    add_again(text, id);
    return true;
}

void Vocabulary::add_again(std::string_view text, int32_t id) {
    store(text, id);
    if (used_ * 2 >= slots_.size()) grow();
    const uint64_t hash = hash_of(text);
    Slot& slot = slots_[slot_of(text, hash)];
    if (slot.id == kNoToken) ++used_;
    slot = {static_cast<uint32_t>(hash >> 32), id};
}

int32_t Vocabulary::find(std::string_view text) const {
    return slots_[slot_of(text, hash_of(text))].id;
}

std::optional<std::string_view> Vocabulary::text_of(int32_t id) const {
    if (id < 0 || static_cast<size_t>(id) >= places_.size() ||
        places_[static_cast<size_t>(id)].bytes < 0)
        return std::nullopt;
    return view(places_[static_cast<size_t>(id)]);
}

}  // namespace dslaunch::text
