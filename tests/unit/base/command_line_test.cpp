#include "base/text/command_line.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {
namespace {

using Words = std::vector<std::string>;

struct Parsed {
    std::string file, out;
    int64_t rank = 0;
    bool json = false;
};

// Parses like `dslaunch NAME …`, with a subcommand that has subcommands, and one that has none.
Parsed parse(const Words& words) {
    Parsed parsed;
    CommandLine app({}, "dslaunch");
    CommandLine& config = app.subcommand("config", {});
    CommandLine& check = config.subcommand("check", {});
    check.add("FILE", parsed.file).required();
    check.add("--json", parsed.json);
    config.subcommand("keys", {});
    CommandLine& pack = app.subcommand("pack", {});
    pack.add("archive", parsed.file).required();
    pack.add("-o,--out-file", parsed.out);
    pack.add("--rank", parsed.rank).at_least(0);
    const bool goes_on = app.parse(words);
    CHECK(goes_on);
    return parsed;
}

std::string refusal(const Words& words) {
    return test::error_of(ExitCode::kUsage, [&] { (void)parse(words); });
}

}  // namespace

TEST_CASE("options are known in either spelling, and values keep theirs") {
    const Parsed parsed = parse({"pack", "a_b.pt", "--out_file=c_d", "--rank", "3"});
    CHECK(parsed.file == "a_b.pt");
    CHECK(parsed.out == "c_d");
    CHECK(parsed.rank == 3);
}

TEST_CASE("a bad command line is told in which subcommand, and what was meant") {
    const std::pair<Words, const char*> rows[] = {
        {{"config", "check", "f", "--jsn"},
         "config check: unknown option `--jsn`, did you mean `--json`?"},
        {{"config", "check", "f", "--zzzzzz=1"},
         "config check: unknown option `--zzzzzz`; --help lists all"},
        {{"config", "chekc", "f"}, "config: `chekc` is unknown, did you mean `check`?"},
        {{"config", "zzzzzz"}, "config: `zzzzzz` is unknown; there are: check, keys"},
        {{"config"}, "config: a subcommand is missing; use one of: check, keys"},
        {{"config", "check"},
         "config check: FILE is required: dslaunch config check [options] FILE; --help lists the "
         "options"},
        {{"config", "check", "f", "g"}, "config check: unexpected `g`"},
        {{"pack", "a", "--out-fil", "x"},
         "pack: unknown option `--out-fil`, did you mean `--out-file`?"},
        {{"pack", "--rnk"}, "pack: unknown option `--rnk`, did you mean `--rank`?"},
        {{"pack", "--out", "x"}, "pack: unknown option `--out`, did you mean `--out-file`?"},
        {{"pack", "a", "--rank", "-1"},
         "pack: --rank: `-1` is not a number from 0 upwards; --help lists the options"},
        {{"pack", "a", "--rank", "1e3"},
         "pack: --rank: `1e3` is not a whole number; write 1000; --help lists the options"},
        {{"pack", "a", "--rank", "4k"},
         "pack: --rank: `4k` is not a number from 0 upwards; write 4000, or a power of two, "
         "without the k; --help lists the options"},
        {{"pack", "a", "\x1b[2J"}, "pack: unexpected `\\x1b[2J`"},
        {{"pack", "a", "--rank"}, "pack: --rank needs a value; --help lists the options"},
    };
    for (const auto& [words, message] : rows) {
        INFO(message);
        CHECK(refusal(words) == message);
    }
}

TEST_CASE("names of other tools are taken, and CLI11's words are ours") {
    int64_t tokens = 0;
    std::string weights, out, prompt;
    CommandLine app({.does = "Writes."}, "dslaunch write");
    app.add("--tokens N", tokens, "how many").range(int64_t{0}, int64_t{9});
    app.add("--weights NAME", weights, "their form").one_of({"fp32", "int4"});
    app.add("-o,--output FILE", out, "where");
    app.add("--prompt TEXT", prompt, "of what");
    CHECK(app.parse({"--max_new_tokens", "5", "--output-file=x"}));
    CHECK(tokens == 5);
    CHECK(out == "x");
    CHECK(app.help().find("max-new-tokens") == std::string::npos);
    const auto said = [&](const Words& words) {
        return test::error_of(ExitCode::kUsage, [&] { static_cast<void>(app.parse(words)); });
    };
    CHECK(said({"--weights", "int44"}) ==
          "write: --weights: `int44` is none of fp32, int4, did you mean `int4`?; --help lists the "
          "options");
    CHECK(said({"--tokens", "10"}) ==
          "write: --tokens: `10` is not a number from 0 to 9; --help lists the options");
    CHECK_THAT(said({"---"}), Catch::Contains("unknown option `---`"));
    CHECK_THAT(said({"--=x"}), Catch::Contains("unknown option `--`"));
    CHECK(said({"-p", "hi"}) == "write: unknown option `-p`: use --prompt TEXT");
    CHECK_THAT(said({"--prompt_file", "x"}), Catch::Contains("use --prompt \"$(cat FILE)\""));
    CHECK(said({"--dtype=float16"}) ==
          "write: unknown option `--dtype`: use --weights f32, bf16, fp16, int8, int4 or nf4");
    CHECK_THAT(said({"--model", "x"}), Catch::Contains("the model's folder as the first argument"));
    CHECK_THAT(said({"--tasks", "mmlu"}), Catch::EndsWith("--help lists all"));
    CHECK_THAT(said({"--output", "a", "--output", "b"}),
               Catch::Contains("--output is given twice"));
    CHECK(said({"--output", "a", "--out", "b"}) ==
          "write: --output and --out mean the same: give one of them");
    CHECK_THAT(said({"-hf", "org/name"}),
               Catch::Contains("write: unknown option `-hf`: use the folder that `hf download"));
    CHECK(app.parse({"--prompt", "-hf"}));
    CHECK(said({"hi"}) ==
          "write: unexpected `hi`; did you mean --prompt VALUE? A text of several words needs "
          "quotes");
}

TEST_CASE("an empty value is refused, unless the help says what it means") {
    std::string chat, prompt, model;
    std::vector<std::string> stops;
    bool is_quiet = false;
    CommandLine app({.does = "Writes."}, "dslaunch write");
    app.add("MODEL", model, "of what");
    app.add("--prompt TEXT", prompt, "text to continue; empty: the model begins by itself");
    app.add("--chat TEXT", chat, "a message");
    app.add("--stop TEXT", stops, "where to end");
    app.add("--quiet", is_quiet, "no words");
    for (const Words& words : {Words{"m", "--chat", ""}, Words{"m", "--stop", "a", "--stop", ""}})
        CHECK_THAT(test::error_of(ExitCode::kUsage, [&] { static_cast<void>(app.parse(words)); }),
                   Catch::Contains(": the value is empty; if it comes from a shell variable"));
    CHECK(app.parse({"m", "--prompt", "", "--quiet", "--chat", " "}));
    CHECK(is_quiet);
}

TEST_CASE("subcommands, values and special numbers of other tools are told as they are here") {
    std::string weights, form;
    int64_t group = -1, seed = 7;
    CommandLine app({}, "dslaunch");
    CommandLine& ckpt = app.subcommand("ckpt", {});
    ckpt.subcommand("ls", {});
    CommandLine& data = app.subcommand("data", {});
    data.subcommand("prepare", {});
    CommandLine& write = app.subcommand("write", {});
    write.add("--weights NAME", weights, "their form")
        .one_of({"f32", "bf16", "int8", "int4", "nf4"});
    write.add("--group N", group, "weights that share a scale; 0: the whole row; default: 32")
        .at_least(0);
    write.add("--seed N", seed, "of the draws").show_default().at_least(0);
    const auto said = [&](const Words& words) {
        return test::error_of(ExitCode::kUsage, [&] { static_cast<void>(app.parse(words)); });
    };
    CHECK_THAT(said({"ckpt", "rm", "r"}), Catch::Contains("`rm` is unknown: `rm -r RUN/"));
    CHECK_THAT(said({"ckpt", "delete", "r"}), Catch::Contains("--keep N"));
    CHECK_THAT(said({"data", "split", "r"}), Catch::Contains("dslaunch.data.eval_fraction=0.1"));
    CHECK_THAT(said({"data", "zz", "r"}), Catch::Contains("there are: prepare"));
    for (const auto& [value, own] : {std::pair{"4bit", ": use int4 or nf4"},
                                     {"Q4_0", ": use int4 or nf4"},
                                     {"fp8", ": use int8"},
                                     {"float32", ": use f32"},
                                     {"bfloat16", ": use bf16"}})
        CHECK_THAT(said({"write", "--weights", value}), Catch::Contains(own));
    CHECK_THAT(said({"write", "--load-in-4bit"}), Catch::Contains("use --weights nf4"));
    CHECK_THAT(said({"write", "--bits", "4"}), Catch::Contains("use --to int4"));
    CHECK_THAT(said({"write", "--group", "-1"}), Catch::Contains("upwards; 0: the whole row; --"));
    CHECK_THAT(said({"write", "--seed", "-1"}),
               Catch::Contains("; for the default, 7, leave the option out"));
}

}  // namespace dslaunch
