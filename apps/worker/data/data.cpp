// dsworker data: rows of tokens from lines of text, and what such rows hold.
#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "storage/disk/output_place.h"
#include "storage/huggingface/named_place.h"
#include "worker/data/data_prepare.h"
#include "worker/data/data_show.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

constexpr const char* kDocs = "docs/guide/data.md";

void declare_prepare(CommandLine& app, PrepareArguments& arguments,
                     std::optional<std::string>& long_documents) {
    app.add("FILE", arguments.files,
            "lines or a list of JSON, Parquet, or a plain text (.txt, .md): text, messages, "
            "conversations, a question and its "
            "answer, or chosen and rejected; - for stdin")
        .required();
    app.add("--model DIR", arguments.model, "the folder with tokenizer.json and the chat template")
        .required();
    app.add("-o,--out FILE", arguments.out, "the file of rows, .safetensors").required();
    app.add("--context N", arguments.rows.length,
            "tokens of a row; default: the longest document's, 1024 at most")
        .at_least(2);
    app.add("--pack", arguments.rows.packs, "put several documents into a row where they fit");
    app.add("!--attend-all", arguments.keeps_apart,
            "with --pack: no column `documents`, for a model whose forward does not take it: its "
            "documents see those before them in the row");
    app.add("--long NAME", long_documents,
            "what becomes of a document longer than a row: split, cut or drop; split unless it is "
            "a pair of answers, which is cut")
        .one_of({"split", "cut", "drop"});
    app.add("--learn-all", arguments.learns_all, "learn questions too, not the answers alone");
    app.add("--as-chat", arguments.makes_chats,
            "render a prompt and its completion, or its chosen and rejected text, as a chat; else "
            "they are text that goes on, whatever template the model has");
    app.add("!--no-end", arguments.ends_texts,
            "no end token behind texts that no chat template has ended");
    app.add("--max-bad-lines N", arguments.bad_lines_max, "more bad lines than that are an error")
        .show_default()
        .at_least(0);
    app.add("--force", arguments.force, storage::kForceHelp);
    app.add("--threads N", arguments.threads, "threads, 0: one for each processor")
        .show_default()
        .at_least(0);
}

}  // namespace

int data_main(int argc, char** argv) {
    CommandLine app({.does = "Turns lines of training text into rows of tokens, and shows them.",
                     .examples = {"dslaunch data prepare chats.jsonl --model DIR "
                                  "-o r.safetensors"},
                     .docs = kDocs},
                    "dslaunch data");
    PrepareArguments prepare;
    std::optional<std::string> long_documents;
    CommandLine& prepare_app = app.subcommand(
        "prepare",
        {.does = "Encodes text and chats with a model's tokenizer and template, and writes rows of "
                 "tokens, and of targets in which only the answers count.",
         .examples = {"dslaunch data prepare c.jsonl --model DIR --context 64 "
                      "--pack -o r.safetensors"},
         .docs = kDocs});
    declare_prepare(prepare_app, prepare, long_documents);
    ShowRowArguments show;
    CommandLine& show_app = app.subcommand(
        "show", {.does = "Prints a row; what is learned stands in [[double brackets]].",
                 .examples = {"dslaunch data show rows.safetensors --model Qwen2.5-0.5B --row 3"},
                 .docs = kDocs});
    show_app.add("FILE", show.file, "a file of rows").required();
    show_app.add("--model DIR", show.model, "the folder with tokenizer.json");
    show_app.add("--row N", show.row, "its number, from 0; of pairs, that of the pair")
        .show_default();
    std::string stats_file;
    CommandLine& stats_app =
        app.subcommand("stats", {.does = "Prints how many rows, tokens and targets a file has.",
                                 .examples = {"dslaunch data stats rows.safetensors"},
                                 .docs = kDocs});
    stats_app.add("FILE", stats_file, "a file of rows").required();
    if (!app.parse({argv + 1, argv + argc})) return 0;
    if (app.chose("prepare")) {
        using tokens::LongDocuments;
        if (long_documents)
            prepare.long_documents = *long_documents == "split" ? LongDocuments::kSplit
                                     : *long_documents == "cut" ? LongDocuments::kCut
                                                                : LongDocuments::kDrop;
        if (!prepare.out.ends_with(".safetensors"))
            fail(ExitCode::kUsage, "--out {}: the name of a file of rows ends with .safetensors",
                 prepare.out);
        prepare.model = storage::tokenizer_folder_at(prepare.model);
        storage::require_unused(prepare.out, prepare.force);
        prepare_data(prepare);
    } else if (app.chose("show")) {
        if (!show.model.empty()) show.model = storage::tokenizer_folder_at(show.model);
        show_row(show);
    } else {
        show_stats(stats_file);
    }
    return 0;
}

}  // namespace dslaunch::worker
