// The unigram model: cuts a piece into the tokens that have the highest sum of scores.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "text/subword/growth.h"
#include "text/subword/subword_model.h"
#include "text/subword/token_trie.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

constexpr int kPowersMax = 308;

double power_of_ten(int exponent) {
    const std::string text = fmt::format("1e{}", exponent);
    double power = 0;
    std::from_chars(text.data(), text.data() + text.size(), power);
    return power;
}

// Returns the number that Rust's serde_json reads from the shortest text of NEAREST. serde_json
// rounds twice, so for one text in eight it reads a double next to NEAREST. The difference may swap
// two ways of cutting a text that have nearly equal scores. REQUIRES: NEAREST is finite.
double as_serde_reads(double nearest) {
    std::array<char, 32> buffer;
    const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                       std::fabs(nearest), std::chars_format::scientific);
    const std::string text(buffer.data(), written.ptr);
    // The text is digits with a point after the first one, then an exponent.
    uint64_t digits = 0;
    int exponent = 0;
    size_t at = 0;
    for (bool is_fraction = false; at < text.size() && text[at] != 'e'; ++at) {
        if (text[at] == '.') {
            is_fraction = true;
            continue;
        }
        digits = digits * 10 + static_cast<uint64_t>(text[at] - '0');
        if (is_fraction) --exponent;
    }
    exponent += std::atoi(text.c_str() + at + 1);
    auto value = static_cast<double>(digits);
    for (; value != 0 && exponent < -kPowersMax; exponent += kPowersMax) value /= 1e308;
    if (exponent >= 0) {
        value *= power_of_ten(exponent);
    } else {
        value /= power_of_ten(-exponent);
    }
    return std::signbit(nearest) ? -value : value;
}

constexpr double kUnknownPenalty = 10;

struct UnigramParts {
    Vocabulary vocabulary;
    std::vector<double> scores;
    std::vector<std::pair<std::string, int32_t>> tokens;
    int32_t unknown = kNoToken;
    bool falls_back_to_bytes = false;
};

class Unigram : public SubwordModel {
  public:
    explicit Unigram(UnigramParts parts)
        : vocabulary_(std::move(parts.vocabulary)),
          scores_(std::move(parts.scores)),
          trie_(std::move(parts.tokens)),
          bytes_(byte_tokens(vocabulary_)),
          unknown_(parts.unknown),
          falls_back_to_bytes_(parts.falls_back_to_bytes) {
        double least = std::numeric_limits<double>::infinity();
        for (const double score : scores_) least = std::min(least, score);
        unknown_score_ = least - kUnknownPenalty;
    }

    [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }

    void encode(std::string_view piece, ModelScratch& scratch,
                std::vector<int32_t>& out) const override {
        auto& nodes = scratch.nodes;
        nodes.assign(piece.size() + 1, {});
        for (size_t i = 0; i < piece.size();) i = offer_from(piece, i, nodes);
        // The best path is followed from its end to its beginning.
        const size_t first = out.size();
        scratch.ends.clear();
        for (size_t end = piece.size(); end > 0;) {
            size_t begin = static_cast<size_t>(nodes[end].begin);
            if (nodes[end].id == unknown_ && unknown_ != kNoToken) {
                while (begin > 0 && nodes[begin].id == unknown_)
                    begin = static_cast<size_t>(nodes[begin].begin);
                append_unknown(piece.substr(begin, end - begin), out);
            } else {
                out.push_back(nodes[end].id);
            }
            // An unknown text may become several byte tokens. All of them end where the text ends.
            scratch.ends.resize(out.size() - first, static_cast<uint32_t>(end));
            end = begin;
        }
        std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
        std::reverse(scratch.ends.begin(), scratch.ends.end());
    }

  private:
    // Offers each token that begins at PIECE[BEGIN] to the node at which it ends. Returns the
    // beginning of the next character.
    size_t offer_from(std::string_view piece, size_t begin,
                      std::vector<ModelScratch::Node>& nodes) const {
        const double till_here = nodes[begin].score;
        size_t next = begin;
        (void)next_point(piece, next);
        bool has_single = false;
        const auto offer = [&](size_t end, double score, int32_t id) {
            ModelScratch::Node& node = nodes[end];
            if (node.begin >= 0 && !(score > node.score)) return;
            node = {score, static_cast<int64_t>(begin), id};
        };
        trie_.for_prefixes(piece.substr(begin), [&](size_t length, int32_t id) {
            offer(begin + length, scores_[static_cast<size_t>(id)] + till_here, id);
            has_single = has_single || begin + length == next;
        });
        if (has_single) return next;
        const ModelScratch::Node& node = nodes[next];
        const double score = unknown_score_ + till_here;
        if (unknown_ == kNoToken && (node.begin < 0 || score > node.score))
            fail(ExitCode::kInput,
                 "the model has no token for '{}' and no unk_id: it cannot encode this text",
                 printable(piece.substr(begin, next - begin)));
        offer(next, score, unknown_);
        return next;
    }

    // Appends the tokens of TEXT in reverse order. TEXT is a part of the piece that is unknown on
    // the best path.
    void append_unknown(std::string_view text, std::vector<int32_t>& out) const {
        const int32_t id = vocabulary_.find(text);
        if (id != kNoToken) return out.push_back(id);
        const auto has_byte = [&](char c) {
            return bytes_[static_cast<unsigned char>(c)] != kNoToken;
        };
        if (!falls_back_to_bytes_ || !std::all_of(text.begin(), text.end(), has_byte))
            return out.push_back(unknown_);
        for (size_t i = text.size(); i-- > 0;)
            out.push_back(bytes_[static_cast<unsigned char>(text[i])]);
    }

    Vocabulary vocabulary_;
    std::vector<double> scores_;
    TokenTrie trie_;
    std::vector<int32_t> bytes_;
    int32_t unknown_;
    bool falls_back_to_bytes_;
    double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<const SubwordModel> read_unigram(const JsonPlace& place) {
    place.expect_object({"type", "unk_id", "vocab", "byte_fallback"});
    UnigramParts parts;
    place.at("vocab").for_elements([&](const JsonPlace& row) {
        const auto id = static_cast<int32_t>(parts.scores.size());
        if (id > kTokenIdMax) row.refuse("the vocabulary has too many tokens");
        int at = 0;
        row.for_elements([&](const JsonPlace& cell) {
            if (at == 0) parts.tokens.emplace_back(short_text(cell), id);
            if (at == 1) parts.scores.push_back(as_serde_reads(cell.number()));
            ++at;
        });
        if (at != 2) row.refuse("expected a token and its score");
        parts.vocabulary.add_again(parts.tokens.back().first, id);
    });
    if (place.has("unk_id")) {
        const int64_t unknown = place.at("unk_id").integer();
        if (unknown < 0 || unknown >= std::ssize(parts.scores))
            place.at("unk_id").refuse("it is not a token number of this vocabulary");
        parts.unknown = static_cast<int32_t>(unknown);
    }
    parts.falls_back_to_bytes = place.has("byte_fallback") && place.at("byte_fallback").boolean();
    return std::make_unique<Unigram>(std::move(parts));
}

}  // namespace dslaunch::text
