// Byte pair encoding: a piece starts as its characters (or bytes), and the two neighbours whose
// merge has the lowest rank are joined, until no two neighbours have a merge. Takes O(n log n)
// steps for n characters.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/subword/byte_alphabet.h"
#include "text/subword/merge_table.h"
#include "text/subword/subword_model.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

constexpr size_t kShortPiece = 24;  // up to here, checking all pairs is faster than a heap
constexpr std::string_view kMeta = "\u2581";

struct BpeSettings {
    std::string unknown;  // empty if there is no unknown token
    std::string prefix;
    std::string suffix;
    bool fuses_unknown = false;
    bool falls_back_to_bytes = false;
    bool ignores_merges = false;
};

class Bpe : public SubwordModel {
  public:
    Bpe(BpeSettings settings, Vocabulary vocabulary, MergeTable merges, bool takes_bytes)
        : settings_(std::move(settings)),
          vocabulary_(std::move(vocabulary)),
          merges_(std::move(merges)),
          takes_bytes_(takes_bytes) {
        if (takes_bytes_) {
            for (int64_t id = 0; id < vocabulary_.ids_end(); ++id) add_bytes(id);
        }
        for (unsigned byte = 0; byte < 256; ++byte) {
            const char c = static_cast<char>(byte);
            single_[byte] = takes_bytes_ || byte < 128 ? lookup({&c, 1}) : kNoToken;
        }
        bytes_ = byte_tokens(vocabulary_);
        if (!settings_.unknown.empty()) unknown_ = vocabulary_.find(settings_.unknown);
        is_plain_ = settings_.prefix.empty() && settings_.suffix.empty();
    }

    [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }
    [[nodiscard]] bool may_cut_words() const override { return may_cut_words_; }
    void allow_cutting() { may_cut_words_ = true; }

    void encode(std::string_view piece, ModelScratch& scratch,
                std::vector<int32_t>& out) const override {
        if (settings_.ignores_merges) {
            const int32_t whole = lookup(piece);
            if (whole != kNoToken) {
                out.push_back(whole);
                scratch.ends.assign(1, static_cast<uint32_t>(piece.size()));
                return;
            }
        }
        std::vector<int32_t>& ids = scratch.ids;
        ids.clear();
        begin_symbols(piece, scratch);
        if (ids.size() <= kShortPiece) {
            merge_short(ids, scratch.ends);
        } else {
            merge_long(scratch);
        }
        out.insert(out.end(), ids.begin(), ids.end());
    }

  private:
    void add_bytes(int64_t id) {
        const auto text = vocabulary_.text_of(static_cast<int32_t>(id));
        if (!text) return;
        const std::optional<std::string> bytes = bytes_of_characters(*text);
        if (bytes) byte_vocabulary_.add_again(*bytes, static_cast<int32_t>(id));
    }

    [[nodiscard]] int32_t lookup(std::string_view text) const {
        return takes_bytes_ ? byte_vocabulary_.find(text) : vocabulary_.find(text);
    }

    void begin_symbols(std::string_view piece, ModelScratch& scratch) const {
        std::vector<int32_t>& ids = scratch.ids;
        std::vector<uint32_t>& ends = scratch.ends;
        ends.clear();
        int32_t unknown = kNoToken;  // an unknown token that is not appended yet
        size_t unknown_end = 0;
        const auto add = [&](int32_t id, size_t end) {
            ids.push_back(id);
            ends.push_back(static_cast<uint32_t>(end));
        };
        for (size_t i = 0; i < piece.size();) {
            const size_t begin = i;
            if (takes_bytes_) {
                ++i;
            } else {
                (void)next_point(piece, i);
            }
            const std::string_view character = piece.substr(begin, i - begin);
            const int32_t id = symbol_of(character, begin == 0, i == piece.size(), scratch.text);
            if (id != kNoToken) {
                if (unknown != kNoToken) add(std::exchange(unknown, kNoToken), unknown_end);
                add(id, i);
                continue;
            }
            if (settings_.falls_back_to_bytes &&
                append_bytes(symbol_text(character, scratch), ids)) {
                for (size_t end = begin + 1; ends.size() < ids.size(); ++end)
                    ends.push_back(static_cast<uint32_t>(std::min(end, i)));
                continue;
            }
            if (settings_.unknown.empty()) continue;
            if (unknown_ == kNoToken)
                fail(ExitCode::kInput,
                     "the model has no token for '{}' and its unk_token '{}' is not in its "
                     "vocabulary",
                     printable(character), printable(settings_.unknown));
            if (unknown != kNoToken && !settings_.fuses_unknown) add(unknown, unknown_end);
            unknown = unknown_;
            unknown_end = i;
        }
        if (unknown != kNoToken) add(unknown, unknown_end);
    }

    // Returns the string that the last call of symbol_of looked up.
    std::string_view symbol_text(std::string_view character, const ModelScratch& scratch) const {
        return is_plain_ ? character : std::string_view(scratch.text);
    }

    int32_t symbol_of(std::string_view character, bool is_first, bool is_last,
                      std::string& text) const {
        if (is_plain_)
            return character.size() == 1 ? single_[static_cast<unsigned char>(character[0])]
                                         : lookup(character);
        text.clear();
        if (!is_first) text += settings_.prefix;
        text += character;
        if (is_last) text += settings_.suffix;
        return lookup(text);
    }

    bool append_bytes(std::string_view text, std::vector<int32_t>& ids) const {
        std::string characters;
        if (takes_bytes_) {  // write each byte as its ByteLevel character
            append_characters(characters, text);
            text = characters;
        }
        for (const char c : text)
            if (bytes_[static_cast<unsigned char>(c)] == kNoToken) return false;
        for (const char c : text) ids.push_back(bytes_[static_cast<unsigned char>(c)]);
        return true;
    }

    void merge_short(std::vector<int32_t>& ids, std::vector<uint32_t>& ends) const {
        std::array<MergeRule, kShortPiece> rules;
        size_t count = ids.size();
        for (size_t i = 0; i + 1 < count; ++i) rules[i] = merges_.find(ids[i], ids[i + 1]);
        while (count > 1) {
            size_t best = 0;
            for (size_t i = 1; i + 1 < count; ++i)
                if (rules[i].rank < rules[best].rank) best = i;
            if (rules[best].id == kNoToken) break;
            ids[best] = rules[best].id;
            --count;
            ends[best] = ends[best + 1];
            for (size_t i = best + 1; i < count; ++i) {
                ids[i] = ids[i + 1];
                ends[i] = ends[i + 1];
            }
            for (size_t i = best + 1; i + 1 < count; ++i) rules[i] = rules[i + 1];
            if (best + 1 < count) rules[best] = merges_.find(ids[best], ids[best + 1]);
            if (best > 0) rules[best - 1] = merges_.find(ids[best - 1], ids[best]);
        }
        ids.resize(count);
        ends.resize(count);
    }

    void merge_long(ModelScratch& scratch) const {
        std::vector<int32_t>& ids = scratch.ids;
        auto& symbols = scratch.symbols;
        auto& heap = scratch.heap;
        symbols.resize(ids.size());
        heap.clear();
        for (size_t i = 0; i < ids.size(); ++i) {
            const auto at = static_cast<int32_t>(i);
            symbols[i] = {ids[i], at - 1, i + 1 < ids.size() ? at + 1 : -1, true};
            if (i + 1 < ids.size()) offer(heap, at, ids[i], ids[i + 1]);
        }
        std::make_heap(heap.begin(), heap.end(), is_later);
        while (!heap.empty()) {
            const ModelScratch::Merge merge = heap.front();
            std::pop_heap(heap.begin(), heap.end(), is_later);
            heap.pop_back();
            apply(merge, scratch);
        }
        ids.clear();
        for (size_t i = 0; i < symbols.size(); ++i) {
            if (symbols[i].is_there) {
                scratch.ends[ids.size()] = scratch.ends[i];
                ids.push_back(symbols[i].id);
            } else if (!ids.empty()) {
                scratch.ends[ids.size() - 1] = scratch.ends[i];
            }
        }
        scratch.ends.resize(ids.size());
    }

    static bool is_later(const ModelScratch::Merge& a, const ModelScratch::Merge& b) {
        return a.order > b.order;
    }

    bool offer(std::vector<ModelScratch::Merge>& heap, int32_t at, int32_t left,
               int32_t right) const {
        const MergeRule rule = merges_.find(left, right);
        if (rule.id == kNoToken) return false;
        heap.push_back({uint64_t{rule.rank} << 32 | static_cast<uint32_t>(at), rule.id});
        return true;
    }

    // Applies MERGE, unless one of its two symbols has changed since the merge was offered.
    void apply(const ModelScratch::Merge& merge, ModelScratch& scratch) const {
        const auto at = static_cast<size_t>(merge.order & UINT32_MAX);
        auto& symbols = scratch.symbols;
        ModelScratch::Symbol& left = symbols[at];
        if (!left.is_there || left.next < 0) return;
        ModelScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
        if (merges_.find(left.id, right.id).id != merge.id) return;
        left.id = merge.id;
        left.next = right.next;
        right.is_there = false;
        const auto push = [&](int32_t from, int32_t first, int32_t second) {
            if (offer(scratch.heap, from, first, second))
                std::push_heap(scratch.heap.begin(), scratch.heap.end(), is_later);
        };
        if (left.next >= 0) {
            ModelScratch::Symbol& next = symbols[static_cast<size_t>(left.next)];
            next.previous = static_cast<int32_t>(at);
            push(static_cast<int32_t>(at), left.id, next.id);
        }
        if (left.previous >= 0)
            push(left.previous, symbols[static_cast<size_t>(left.previous)].id, left.id);
    }

    BpeSettings settings_;
    Vocabulary vocabulary_;
    Vocabulary byte_vocabulary_;  // the same tokens as bytes, if takes_bytes_
    MergeTable merges_;
    std::array<int32_t, 256> single_{};  // tokens of one byte
    std::vector<int32_t> bytes_;
    int32_t unknown_ = kNoToken;
    bool takes_bytes_;
    bool is_plain_ = true;
    bool may_cut_words_ = false;
};

// Reads a merge, which is a string with a blank between its two tokens, or a list of the two.
std::pair<std::string, std::string> read_merge(const JsonPlace& place, bool is_text) {
    if (is_text) {
        const std::string& text = place.text();
        const size_t blank = text.find(' ');
        if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
            place.refuse("expected two tokens with one space between them");
        return {text.substr(0, blank), text.substr(blank + 1)};
    }
    std::vector<std::string> two;
    place.for_elements([&](const JsonPlace& part) { two.push_back(part.text()); });
    if (two.size() != 2) place.refuse("expected a merge of two tokens");
    return {two[0], two[1]};
}

int32_t needed(const JsonPlace& place, const Vocabulary& vocabulary, const std::string& token) {
    const int32_t id = vocabulary.find(token);
    if (id == kNoToken)
        place.refuse(
            fmt::format("the merge's token '{}' is not in the vocabulary", printable(token)));
    return id;
}

// Returns true if U+2581 follows another character somewhere in TEXT.
bool has_inner_meta(std::string_view text) {
    for (size_t at = text.find(kMeta); at != std::string_view::npos; at = text.find(kMeta, at + 1))
        if (at != 0 && !text.substr(0, at).ends_with(kMeta)) return true;
    return false;
}

// Returns the bytes for which the characters of TEXT stand; TEXT is the prefix or suffix of
// subwords. Refuses the file at PLACE if a character stands for no byte.
std::string as_bytes(const JsonPlace& place, const std::string& text) {
    const std::optional<std::string> bytes = bytes_of_characters(text);
    if (!bytes)
        place.refuse(fmt::format(
            "'{}' before or after subwords cannot be combined with a ByteLevel pre-tokenizer",
            printable(text)));
    return *bytes;
}

BpeSettings read_settings(const JsonPlace& place) {
    place.expect_object({"type", "dropout", "unk_token", "continuing_subword_prefix",
                         "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
                         "vocab", "merges"});
    if (place.has("dropout") && place.at("dropout").number() != 0)
        place.at("dropout").refuse(
            "dropout would make tokens random and is not supported; set it to null");
    const auto text = [&](const char* key) {
        return place.has(key) ? place.at(key).text() : std::string();
    };
    // Prefix and suffix are added to every character.
    const auto mark = [&](const char* key) {
        constexpr size_t kMarkBytesMax = 64;
        if (text(key).size() > kMarkBytesMax)
            place.at(key).refuse(
                fmt::format("the string has {} bytes, but at most {} are supported",
                            text(key).size(), kMarkBytesMax));
        return text(key);
    };
    const auto flag = [&](const char* key) { return place.has(key) && place.at(key).boolean(); };
    return {text("unk_token"),          mark("continuing_subword_prefix"),
            mark("end_of_word_suffix"), flag("fuse_unk"),
            flag("byte_fallback"),      flag("ignore_merges")};
}

}  // namespace

std::unique_ptr<const SubwordModel> read_bpe(const JsonPlace& place, ModelReading reading) {
    BpeSettings settings = read_settings(place);
    Vocabulary vocabulary = read_vocabulary(place);
    size_t rules_count = 0;
    place.at("merges").for_elements([&](const JsonPlace&) { ++rules_count; });
    MergeTable merges(rules_count);
    uint32_t rank = 0;
    bool has_inner = false;
    std::optional<bool> is_text;  // all merges have the form of the first one
    place.at("merges").for_elements([&](const JsonPlace& merge) {
        if (!is_text) is_text = is_text_place(merge);
        // In files of the first versions, the list includes the comment line of merges.txt.
        if (*is_text && merge.text().starts_with("#version")) return;
        const auto [left, right] = read_merge(merge, *is_text);
        if (right.size() < settings.prefix.size())
            merge.refuse("its second token is shorter than continuing_subword_prefix");
        const std::string both = left + right.substr(settings.prefix.size());
        has_inner = has_inner || has_inner_meta(both);
        const int32_t left_id = needed(merge, vocabulary, left);
        const int32_t right_id = needed(merge, vocabulary, right);
        merges.set(left_id, right_id, {rank++, needed(merge, vocabulary, both)});
    });
    const bool may_cut = !has_inner && !reading.takes_bytes && settings.prefix.empty() &&
                         settings.suffix.empty() && !settings.ignores_merges &&
                         vocabulary.find(kMeta) != kNoToken;
    if (reading.takes_bytes) {
        settings.prefix = as_bytes(place, settings.prefix);
        settings.suffix = as_bytes(place, settings.suffix);
    }
    auto model = std::make_unique<Bpe>(std::move(settings), std::move(vocabulary),
                                       std::move(merges), reading.takes_bytes);
    if (may_cut) model->allow_cutting();
    return model;
}

}  // namespace dslaunch::text
