#include "text/tokenizer/added_tokens.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "text/subword/growth.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

constexpr size_t kTokensMax = 1 << 20;

uint32_t flags_at(std::string_view text, size_t at) {
    return CodePoints::table().flags(next_point(text, at));
}

bool is_word_before(std::string_view text, size_t at) {
    return at > 0 && (flags_at(text, previous_begin(text, at)) & kWordFlag) != 0;
}

bool is_word_after(std::string_view text, size_t at) {
    return at < text.size() && (flags_at(text, at) & kWordFlag) != 0;
}

// Returns the beginning of the run of blanks that ends at AT. Does not look at bytes before LEAST.
size_t before_spaces(std::string_view text, size_t at, size_t least) {
    while (at > least) {
        const size_t begin = previous_begin(text, at);
        if (!(flags_at(text, begin) & kSpaceFlag)) break;
        at = begin;
    }
    return at;
}

size_t after_spaces(std::string_view text, size_t at) {
    while (at < text.size() && (flags_at(text, at) & kSpaceFlag)) (void)next_point(text, at);
    return at;
}

AddedToken read_token(const JsonPlace& place) {
    place.expect_object(
        {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.text = short_text(place.at("content"));
    token.is_single_word = place.at("single_word").boolean();
    token.strips_left = place.at("lstrip").boolean();
    token.strips_right = place.at("rstrip").boolean();
    token.is_normalized = place.at("normalized").boolean();
    token.is_special = place.at("special").boolean();
    token.normal = token.text;
    return token;
}

std::vector<std::pair<std::string, int32_t>> texts_of(const std::vector<AddedToken>& tokens,
                                                      bool normalized) {
    std::vector<std::pair<std::string, int32_t>> texts;
    for (size_t i = 0; i < tokens.size(); ++i)
        if (tokens[i].is_normalized == normalized)
            texts.emplace_back(tokens[i].normal, static_cast<int32_t>(i));
    return texts;
}

}  // namespace

TokenFinder::TokenFinder(const std::vector<AddedToken>& tokens, bool normalized)
    : tokens_(&tokens), trie_(texts_of(tokens, normalized)) {
    for (const auto& [text, index] : texts_of(tokens, normalized)) {
        begins_[static_cast<unsigned char>(text[0])] = true;
        is_empty_ = false;
    }
}

void TokenFinder::split(std::string_view text, std::vector<TextPart>& parts) const {
    size_t done = 0;
    for (size_t at = 0; at < text.size() && !is_empty_;) {
        if (!begins_[static_cast<unsigned char>(text[at])]) {
            ++at;
            continue;
        }
        const TokenTrie::Found found = trie_.longest(text.substr(at));
        if (found.id == kNoToken) {
            ++at;
            continue;
        }
        const AddedToken& token = (*tokens_)[static_cast<size_t>(found.id)];
        size_t begin = at;
        size_t end = at + found.length;
        at = end;  // the search goes on here, whatever blanks belong to this token
        if (token.is_single_word && (is_word_before(text, begin) || is_word_after(text, end)))
            continue;
        // The search for blanks stays within the text from `done` on. So no blank is checked twice,
        // even if both this token and the previous one strip blanks.
        if (token.strips_left) begin = before_spaces(text, std::max(begin, done), done);
        if (token.strips_right) end = after_spaces(text, std::max(end, done));
        if (done < begin) parts.push_back({done, begin, kNoToken});
        // A token inside the blanks that the previous token has stripped is skipped, as in the
        // Python package `tokenizers`.
        if (begin < end) parts.push_back({begin, end, token.id});
        done = end;
    }
    if (done < text.size()) parts.push_back({done, text.size(), kNoToken});
}

AddedTokens::AddedTokens(const JsonPlace& place, const Vocabulary& vocabulary,
                         const std::vector<std::unique_ptr<const Normalizer>>& normalizers) {
    int64_t next_id = vocabulary.tokens_count();
    std::unordered_map<std::string, size_t> normals;
    place.for_elements([&](const JsonPlace& row) {
        AddedToken token = read_token(row);
        if (token.text.empty()) return;  // the package skips empty tokens too
        const auto known = by_text_.find(token.text);
        token.id =
            known != by_text_.end() ? tokens_[known->second].id : vocabulary.find(token.text);
        if (token.id == kNoToken) token.id = static_cast<int32_t>(next_id++);
        const int64_t said = row.at("id").integer();
        if (said != token.id)
            row.refuse(
                fmt::format("the token '{}' has the number {} here, but the Python package would "
                            "give it {}, from the order of the tokens",
                            printable(token.text), said, token.id));
        if (token.id > kTokenIdMax || tokens_.size() > kTokensMax)
            row.refuse("there are too many tokens");
        if (token.is_normalized) {
            NormalText normal = normal_text(token.text, 0, 16 * kTokenBytesMax);
            for (const auto& step : normalizers) step->apply(normal);
            token.normal = normal.text;
            if (token.normal.empty() || token.normal.size() > kTokenBytesMax)
                row.refuse("the token becomes empty or too long when it is normalized");
        }
        if (token.is_special) specials_.insert(token.text);
        const size_t index = known != by_text_.end() ? known->second : tokens_.size();
        by_text_[token.text] = index;
        by_id_[token.id] = index;
        if (index == tokens_.size()) tokens_.emplace_back();
        tokens_[index] = std::move(token);
    });
    for (const AddedToken& token : tokens_)
        if (!normals.emplace((token.is_normalized ? "n" : "-") + token.normal, 0).second)
            place.refuse(fmt::format("two tokens become '{}' when they are normalized",
                                     printable(token.normal)));
}

const AddedToken* AddedTokens::find(std::string_view text) const {
    const auto found = by_text_.find(std::string(text));
    return found == by_text_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(int32_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace dslaunch::text
