#include "storage/tokens/token_counts.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/text.h"

namespace dslaunch::storage {

namespace {

constexpr int64_t kBytes = 256;
// No warning is given for smaller vocabularies: with them, the model's own tokenizer also makes
// many texts that contain only small tokens.
constexpr int64_t kVocabularyMin = 16 * kBytes;
// The first `vocabulary / kPart` tokens count as small. They are single characters and the first
// merges.
constexpr int64_t kPart = 100;
constexpr int64_t kTokensMin = 64;
// A text of a language has at least this many different characters (small letters, capitals and
// punctuation). Sums, games, music and genes have fewer.
constexpr int64_t kSignsMin = 40;

}  // namespace

TokenCounts::TokenCounts(int64_t vocabulary) : vocabulary_(vocabulary) {
    if (vocabulary >= kVocabularyMin)
        counts_.resize(static_cast<size_t>(std::max(vocabulary / kPart, kBytes)));
}

bool TokenCounts::add(int64_t token) {
    if (token < 0 || token >= std::ssize(counts_)) {
        counts_.clear();
        return false;
    }
    ++counts_[static_cast<size_t>(token)];
    ++added_;
    return true;
}

// Returns true if the tokens look like the bytes of a text: mostly ASCII letters and blanks, or
// only ASCII and multi-byte letters of UTF-8 with the right number of continuation bytes.
bool TokenCounts::look_like_bytes() const {
    const auto sum = [&](int first, int last) {
        return std::accumulate(counts_.begin() + first, counts_.begin() + last + 1, int64_t{0});
    };
    const int64_t letters = sum('a', 'z') + sum('A', 'Z');
    const int64_t ascii = sum(' ', '~') + sum('\t', '\r');
    if (10 * letters >= 4 * added_ && 10 * ascii >= 9 * added_ && 50 * sum(' ', ' ') >= added_ &&
        sum('e', 'e') > 0)
        return true;
    const int64_t later = sum(0x80, 0xbf);
    const int64_t due = sum(0xc2, 0xdf) + 2 * sum(0xe0, 0xef) + 3 * sum(0xf0, 0xf4);
    const int64_t longer = sum(0x80, 0xf4) - sum(0xc0, 0xc1);
    // The first byte of a UTF-8 character announces how many later bytes follow. `due` is the
    // announced number, and `later` is the actual number. They may differ by up to 3, because the
    // first and the last character may be cut off.
    return 2 * later >= kTokensMin && std::abs(later - due) <= 3 && ascii + longer == added_;
}

std::string TokenCounts::foreign_text() const {
    if (counts_.empty() || added_ < kTokensMin) return "";
    const bool bytes = look_like_bytes();
    const auto used = std::ranges::count_if(counts_, [](int64_t count) { return count > 0; });
    if (!bytes && used < kSignsMin) return "";
    return fmt::format(
        "all its tokens are below {}, but the model's vocabulary has {}: they look like {}, not "
        "like tokens of this model's tokenizer; make new rows: dslaunch data prepare TEXT --model "
        "MODEL -o FILE",
        counts_.size(), vocabulary_, bytes ? "bytes" : "another tokenizer's");
}

std::string foreign_text(const TokenFile& file, int64_t vocabulary) {
    constexpr int64_t kBlock = 4096;
    TokenCounts counts(vocabulary);
    std::vector<int64_t> block;
    for (int64_t begin = 0; begin < file.token_count(); begin += kBlock) {
        block.resize(static_cast<size_t>(std::min(kBlock, file.token_count() - begin)));
        file.read(begin, block);
        for (const int64_t token : block)
            if (!counts.add(token)) return "";
    }
    return counts.foreign_text();
}

}  // namespace dslaunch::storage
