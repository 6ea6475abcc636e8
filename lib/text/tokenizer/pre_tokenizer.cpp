#include "text/tokenizer/pre_tokenizer.h"

#include <functional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/pattern/simple_pattern.h"
#include "text/subword/byte_alphabet.h"
#include "text/subword/growth.h"
#include "text/tokenizer/splitting.h"
#include "text/tokenizer/step_fields.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {

namespace {

constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The text of a piece, and the original places of its bytes.
struct PieceText {
    std::string_view text;
    std::span<const uint32_t> from;
};

// Rewrites the text piece by piece. WRITE(out, piece) appends the new text of the piece to `out`,
// and adds the new pieces to PIECES.spare_list.
template <typename Write>
void rewrite_pieces(SplitText& pieces, const Write& write) {
    AlignedText& out = pieces.spare;
    out.clear();
    pieces.spare_list.clear();
    for (const PieceRange& piece : pieces.list) {
        const size_t length = piece.end - piece.begin;
        write(out, PieceText{pieces.text.substr(piece.begin, length),
                             pieces.from.subspan(piece.begin, length)});
        require_room(out.text.size(), pieces.bytes_max);
    }
    std::swap(pieces.written, pieces.spare);
    std::swap(pieces.list, pieces.spare_list);
    pieces.text = pieces.written.text;
    pieces.from = pieces.written.from;
}

uint32_t size32(const AlignedText& text) {
    return static_cast<uint32_t>(text.text.size());
}

struct ByteLevelChoices {
    bool adds_prefix_space = true;
    bool uses_pattern = true;
    bool leaves_bytes = false;
};

class ByteLevel : public PreTokenizer {
  public:
    explicit ByteLevel(ByteLevelChoices choices)
        : choices_(choices), pattern_(compile_pattern(kGpt2Expression)) {}

    void apply(SplitText& pieces) const override {
        if (choices_.adds_prefix_space && lacks_space(pieces))
            rewrite_pieces(pieces, [&](AlignedText& out, const PieceText& piece) {
                const uint32_t begin = size32(out);
                if (!piece.text.starts_with(' ')) out.append(" ", piece.from.front());
                out.append(piece.text, piece.from);
                pieces.spare_list.push_back({begin, size32(out)});
            });
        if (choices_.uses_pattern) split_pieces(pieces, *pattern_, {});
        if (choices_.leaves_bytes) return;
        rewrite_pieces(pieces, [&](AlignedText& out, const PieceText& piece) {
            const uint32_t begin = size32(out);
            for (size_t i = 0; i < piece.text.size(); ++i) {
                append_characters(out.text, piece.text.substr(i, 1));
                out.settle(piece.from[i]);
            }
            pieces.spare_list.push_back({begin, size32(out)});
        });
    }

  private:
    static bool lacks_space(const SplitText& pieces) {
        for (const PieceRange& piece : pieces.list)
            if (pieces.text[piece.begin] != ' ') return true;
        return false;
    }

    ByteLevelChoices choices_;
    std::unique_ptr<const Pattern> pattern_;
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace : public PreTokenizer {
  public:
    Metaspace(std::string replacement, PrependScheme scheme, bool splits)
        : replacement_(std::move(replacement)), scheme_(scheme), splits_(splits) {}

    void apply(SplitText& pieces) const override {
        rewrite_pieces(pieces, [&](AlignedText& out, const PieceText& piece) {
            const std::string_view text = piece.text;
            const size_t first = out.text.size();
            const bool is_marked = text.starts_with(' ') || text.starts_with(replacement_);
            const bool wants = scheme_ == PrependScheme::kAlways ||
                               (scheme_ == PrependScheme::kFirst && piece.from.front() == 0);
            if (wants && !is_marked) out.append(replacement_, piece.from.front());
            for (size_t at = 0; at < text.size();) {
                const size_t blank = std::min(text.find(' ', at), text.size());
                out.append(text.substr(at, blank - at), piece.from.subspan(at, blank - at));
                if (blank < text.size()) out.append(replacement_, piece.from[blank]);
                at = blank + 1;
            }
            add_words(out.text, first, pieces.spare_list);
        });
    }

  private:
    // Adds the words of OUT, from byte FIRST on, to LIST. If splits_ is true, a word begins at each
    // replacement character; otherwise there is only one word.
    void add_words(const std::string& out, size_t first, std::vector<PieceRange>& list) const {
        size_t begin = first;
        while (begin < out.size()) {
            size_t end = out.size();
            if (splits_) end = std::min(out.find(replacement_, begin + 1), end);
            list.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
            begin = end;
        }
    }

    std::string replacement_;
    PrependScheme scheme_;
    bool splits_;
};

class FixedLength : public PreTokenizer {
  public:
    explicit FixedLength(size_t characters) : characters_(characters) {}

    void apply(SplitText& pieces) const override {
        pieces.spare_list.clear();
        for (const PieceRange& piece : pieces.list) {
            for (size_t i = piece.begin; i < piece.end;) {
                const auto begin = static_cast<uint32_t>(i);
                for (size_t k = 0; k < characters_ && i < piece.end; ++k)
                    (void)next_point(pieces.text, i);
                pieces.spare_list.push_back({begin, static_cast<uint32_t>(i)});
            }
        }
        std::swap(pieces.list, pieces.spare_list);
    }

  private:
    size_t characters_;
};

// Returns a pattern with one alternative for each function in WANTED. An alternative matches a
// character if the function returns true for the flags of the character. If TAKES_RUNS is true, it
// matches a run of such characters.
std::unique_ptr<const Pattern> flag_pattern(
    bool takes_runs, const std::vector<std::function<bool(uint32_t)>>& wanted) {
    SimpleProgram program;
    for (const auto& one : wanted) {
        const auto index = static_cast<uint16_t>(program.steps.size());
        CharSet set;
        set.add_classes(one);
        program.sets.push_back(std::move(set));
        SimpleStep step;
        step.set = static_cast<uint8_t>(index);
        step.repeat_max = takes_runs ? UINT32_MAX : 1;
        step.gives_back = false;
        step.next = static_cast<uint16_t>(wanted.size());
        program.steps.push_back(std::move(step));
        program.heads.push_back(index);
    }
    return std::make_unique<SimplePattern>(std::move(program));
}

std::unique_ptr<const Pattern> flag_pattern(uint32_t flag) {
    return flag_pattern(false, {[flag](uint32_t flags) { return (flags & flag) != 0; }});
}

std::unique_ptr<const PreTokenizer> read_metaspace_step(const JsonPlace& place) {
    expect_step_fields(place, {"type", "replacement", "prepend_scheme", "split", "str_rep"});
    PrependScheme scheme = PrependScheme::kAlways;
    if (place.has("prepend_scheme")) {
        const std::string& name = place.at("prepend_scheme").text();
        if (name == "first") {
            scheme = PrependScheme::kFirst;
        } else if (name == "never") {
            scheme = PrependScheme::kNever;
        } else if (name != "always") {
            place.at("prepend_scheme").refuse("expected always, never or first");
        }
    }
    if (place.has("add_prefix_space") && !place.at("add_prefix_space").boolean()) {
        if (place.has("prepend_scheme") && scheme != PrependScheme::kNever)
            place.refuse("add_prefix_space contradicts prepend_scheme");
        scheme = PrependScheme::kNever;
    }
    return std::make_unique<Metaspace>(read_character(place.at("replacement")), scheme,
                                       !place.has("split") || place.at("split").boolean());
}

using Steps = std::vector<std::unique_ptr<const PreTokenizer>>;

class PreTokenizerReader {
  public:
    PreTokenizerReader(PreTokenizers& out, PreTokenizerReading reading)
        : out_(out), reading_(reading) {}

    void read(const JsonPlace& place) {
        size_t left = 0;
        for_steps(place, "pretokenizers", [&](const JsonPlace&, const std::string&) { ++left; });
        for_steps(place, "pretokenizers", [&](const JsonPlace& step, const std::string& type) {
            read_one(step, type, --left == 0);
        });
    }

  private:
    void add(std::unique_ptr<const PreTokenizer> step) { out_.steps.push_back(std::move(step)); }

    void read_byte_level(const JsonPlace& place, bool is_last) {
        expect_step_fields(place, {"type"});
        ByteLevelChoices choices;
        choices.adds_prefix_space = place.at("add_prefix_space").boolean();
        choices.uses_pattern = !place.has("use_regex") || place.at("use_regex").boolean();
        out_.ends_in_bytes = is_last && !has_byte_level_;
        choices.leaves_bytes = out_.ends_in_bytes && reading_.leaves_bytes;
        has_byte_level_ = true;
        add(std::make_unique<ByteLevel>(choices));
    }

    void read_split(const JsonPlace& place) {
        expect_step_fields(place, {"type", "pattern", "behavior", "invert"});
        add(split_by(read_pattern(place.at("pattern")),
                     {read_behavior(place.at("behavior")), place.at("invert").boolean()}));
    }

    void read_one(const JsonPlace& place, const std::string& type, bool is_last) {
        const auto alone = [&] { expect_step_fields(place, {"type"}); };
        if (type == "ByteLevel") return read_byte_level(place, is_last);
        if (type == "Split") return read_split(place);
        if (type == "Metaspace") return add(read_metaspace_step(place));
        if (type == "WhitespaceSplit") {
            alone();
            add(split_by(flag_pattern(kSpaceFlag), {Behavior::kRemoved}));
        } else if (type == "Whitespace") {
            alone();
            const auto is_word = [](uint32_t flags) { return (flags & kWordFlag) != 0; };
            const auto is_other = [](uint32_t flags) {
                return (flags & (kWordFlag | kSpaceFlag)) == 0;
            };
            add(split_by(flag_pattern(true, {is_word, is_other}), {Behavior::kRemoved, true}));
        } else if (type == "BertPreTokenizer") {
            alone();
            add(split_by(flag_pattern(kSpaceFlag), {Behavior::kRemoved}));
            add(split_by(flag_pattern(kPunctuationFlag), {}));
        } else if (type == "Punctuation") {
            expect_step_fields(place, {"type", "behavior"});
            const Behavior behavior =
                place.has("behavior") ? read_behavior(place.at("behavior")) : Behavior::kIsolated;
            add(split_by(flag_pattern(kPunctuationFlag), {behavior}));
        } else if (type == "Digits") {
            expect_step_fields(place, {"type", "individual_digits"});
            const bool alone_each = place.at("individual_digits").boolean();
            add(split_by(flag_pattern(kNumericFlag),
                         {alone_each ? Behavior::kIsolated : Behavior::kContiguous}));
        } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
            expect_step_fields(place, {"type", "delimiter"});
            add(split_by(literal_pattern(read_character(place.at("delimiter"))),
                         {Behavior::kRemoved}));
        } else if (type == "FixedLength") {
            expect_step_fields(place, {"type", "length"});
            const int64_t length = place.has("length") ? place.at("length").integer() : 5;
            if (length < 1) place.at("length").refuse("must be at least 1");
            add(std::make_unique<FixedLength>(static_cast<size_t>(length)));
        } else {
            place.refuse(fmt::format("the pre-tokenizer `{}` is not known to this version",
                                     printable(type)));
        }
    }

    PreTokenizers& out_;
    PreTokenizerReading reading_;
    bool has_byte_level_ = false;
};

}  // namespace

PreTokenizers read_pre_tokenizers(const JsonPlace& place, PreTokenizerReading reading) {
    PreTokenizers out;
    PreTokenizerReader(out, reading).read(place);
    return out;
}

}  // namespace dslaunch::text
