// dsworker data: rows of tokens from lines of text, and what such rows hold.
#include <filesystem>
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
            "lines or a list of JSON, Parquet, or plain text (.txt, .md); an entry has text, "
            "messages, conversations, a question and its answer, or chosen and rejected; - for "
            "stdin")
        .required();
    app.add("--model DIR", arguments.model,
            "the model's folder, with tokenizer.json and the chat template")
        .required();
    app.add("-o,--out FILE", arguments.out, "the file of rows to write, .safetensors").required();
    app.add("--context N", arguments.rows.length,
            "tokens in a row; default: as many as the longest document has, 1024 at most")
        .at_least(2);
    app.add("--pack", arguments.rows.packs, "put several documents into a row where they fit");
    app.add("!--attend-all", arguments.keeps_apart,
            "with --pack: write no column `documents`, for a model whose forward does not take it; "
            "documents then see earlier documents of their row");
    app.add("--long NAME", long_documents,
            "what to do with a document longer than a row: split, cut or drop; default: split, and "
            "cut for pairs of answers")
        .one_of({"split", "cut", "drop"});
    app.add("--learn-all", arguments.learns_all, "learn questions too, not only answers");
    app.add("--as-chat", arguments.makes_chats,
            "write a prompt and its completion (or its chosen and rejected answer) as a chat; "
            "default: as one plain text, even if the model has a chat template");
    app.add("!--no-end", arguments.ends_texts,
            "write no end token after texts without a chat template");
    app.add("--max-bad-lines N", arguments.bad_lines_max,
            "the most bad lines to leave out; more are an error")
        .show_default()
        .at_least(0);
    app.add("--force", arguments.force, storage::kForceHelp);
    app.add("--threads N", arguments.threads, "number of threads; 0: one for each processor")
        .show_default()
        .at_least(0);
}

}  // namespace

int data_main(int argc, char** argv) {
    CommandLine app({.does = "Turns text and chats into rows of tokens, and shows them.",
                     .examples = {"dslaunch data prepare chats.jsonl --model DIR "
                                  "-o r.safetensors"},
                     .docs = kDocs},
                    "dslaunch data");
    PrepareArguments prepare;
    std::optional<std::string> long_documents;
    CommandLine& prepare_app = app.subcommand(
        "prepare",
        {.does = "Encodes text and chats with the tokenizer and chat template of a model, and "
                 "writes rows of tokens. Of chats only the answers are learned.",
         .examples = {"dslaunch data prepare c.jsonl --model DIR --context 64 "
                      "--pack -o r.safetensors"},
         .docs = kDocs});
    declare_prepare(prepare_app, prepare, long_documents);
    ShowRowArguments show;
    CommandLine& show_app = app.subcommand(
        "show", {.does = "Prints a row, with learned text in [[double brackets]].",
                 .examples = {"dslaunch data show rows.safetensors --model Qwen2.5-0.5B --row 3"},
                 .docs = kDocs});
    show_app.add("FILE", show.file, "a file of rows").required();
    show_app.add("--model DIR", show.model, "the folder with tokenizer.json");
    show_app.add("--row N", show.row, "number of the row, or of the pair of answers, from 0")
        .show_default();
    std::string stats_file;
    CommandLine& stats_app =
        app.subcommand("stats", {.does = "Prints how many rows, tokens and targets a file has.",
                                 .examples = {"dslaunch data stats rows.safetensors"},
                                 .docs = kDocs});
    stats_app.add("FILE", stats_file, "a file of rows").required();
    if (argc > 1) storage::refuse_download(argv[1], argc > 2 ? argv[2] : "");
    if (!app.parse({argv + 1, argv + argc})) return 0;
    if (app.chose("prepare")) {
        using text::LongDocuments;
        if (long_documents)
            prepare.long_documents = *long_documents == "split" ? LongDocuments::kSplit
                                     : *long_documents == "cut" ? LongDocuments::kCut
                                                                : LongDocuments::kDrop;
        if (!prepare.out.ends_with(".safetensors"))
            fail(ExitCode::kUsage, "--out {}: the name of a file of rows ends with .safetensors",
                 prepare.out);
        prepare.model = storage::tokenizer_folder_at(prepare.model);
        storage::require_new_file(prepare.out, prepare.force);
        std::error_code missing;
        for (const std::string& file : prepare.files)
            if (std::filesystem::equivalent(file, prepare.out, missing))
                fail(ExitCode::kUsage,
                     "--out {}: is read too, and would be lost: name another file", prepare.out);
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
