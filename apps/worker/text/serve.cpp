// dsworker serve: a model behind OpenAI's protocol, on one rank or shared by those of a job.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "infer/sample/sampler.h"
#include "serve/http_server.h"
#include "storage/files/mapped_file.h"
#include "worker/roles.h"
#include "worker/text/decoder_session.h"
#include "worker/text/rank_process.h"
#include "worker/text/text_files.h"

namespace dslaunch::worker {
namespace {

struct ServeArguments {
    DecoderArguments decoder;
    serve::ServerOptions server;
    infer::EngineOptions engine;
    int64_t cache_tokens = 0;
    int64_t port = 8000;
    std::string api_key_file;
    double grace_s = 30;
};

void declare(CommandLine& app, ServeArguments& arguments) {
    app.add("MODEL", arguments.decoder.model, "a Hugging Face folder").required();
    app.add("--host ADDRESS", arguments.server.host, "where to listen").show_default();
    app.add("--port N", arguments.port, "0: one that is free")
        .show_default()
        .range(int64_t{0}, int64_t{65'535});
    app.add("--api-key-file FILE", arguments.api_key_file,
            "clients must send the first line of FILE as their API key");
    app.add("--grace SECONDS", arguments.grace_s,
            "how long texts may go on after Ctrl-C or SIGTERM; a second one ends them at once")
        .show_default()
        .range(0.0, 86'400.0);
    app.add("--name NAME", arguments.server.model, "of the model; default: its folder's");
    app.add("--sequences N", arguments.engine.sequences_max, "texts that share each step")
        .show_default()
        .range(int64_t{1}, int64_t{512});
    app.add("--queue N", arguments.engine.queue_max, "texts that wait; more are refused (429)")
        .show_default()
        .range(int64_t{0}, int64_t{1'000'000});
    app.add("--cache-tokens N", arguments.cache_tokens,
            "positions in the cache of keys and values, all texts together; 0: two contexts, at "
            "least 16384, or what memory holds")
        .show_default()
        .range(int64_t{0}, kPositionsMax);
    app.add("--context N", arguments.decoder.context, "tokens of a text, 0: the model's own limit")
        .show_default()
        .at_least(0);
    declare_decoder(app, arguments.decoder);
    declare_cpu(app, arguments.decoder);
    app.group("where a request is silent");
    infer::SamplingOptions& sampling = arguments.server.sampling;
    app.add("--temperature X", sampling.temperature, "how freely tokens are drawn").show_default();
    app.add("--top-k N", sampling.top_k, "draw among the N likeliest, 0: among all").show_default();
    app.add("--top-p X", sampling.top_p, "draw among the likeliest that reach X").show_default();
}

// Opens SESSION with the cache that is asked for, or with the default if it fits, or what does.
void open_session(DecoderSession& session, const ServeArguments& arguments) {
    constexpr int64_t kPositionsMin = 16'384, kPositionsLeast = 1024;
    const int64_t context = session.context();
    if (arguments.cache_tokens > 0) return session.open(infer::pages_for(arguments.cache_tokens));
    session.open(infer::pages_for(std::max(2 * context, kPositionsMin)),
                 infer::pages_for(std::min(context, kPositionsLeast)));
}

std::string first_line_of(const std::string& path) {
    const storage::MappedFile file(path);
    const std::string_view text = text_in(file.bytes());
    const std::string key(trim(text.substr(0, text.find('\n'))));
    if (key.empty()) fail(ExitCode::kInput, "{}: its first line is empty", printable(path));
    return key;
}

// Waits a moment for SIGINT or SIGTERM, which are blocked in all threads. At most 0: none came.
int end_signal() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    constexpr timespec kInterval{0, 50'000'000};
    return ::sigtimedwait(&ends, nullptr, &kInterval);
}

bool end_signal_comes() {
    return end_signal() > 0;
}

// While this lives a signal ends the process: nobody is served yet, and weights may take minutes.
class EndWhileLoading {
  public:
    EndWhileLoading()
        : watcher_([this] {
              while (!is_done_)
                  if (const int signal = end_signal(); signal > 0) std::_Exit(128 + signal);
          }) {}
    EndWhileLoading(const EndWhileLoading&) = delete;
    EndWhileLoading& operator=(const EndWhileLoading&) = delete;
    ~EndWhileLoading() {
        is_done_ = true;
        watcher_.join();
    }

  private:
    std::atomic<bool> is_done_ = false;
    std::thread watcher_;
};

// Serves until a signal, the launcher or a failure of SERVICE asks to end. Texts that were begun
// may then go on for GRACE, or until another signal comes.
void serve_until_asked(serve::HttpServer& server, serve::TextService& service,
                       const RankProcess& process, Duration grace) {
    std::atomic<bool> has_ended = false, was_asked = false;
    std::thread watcher([&] {
        while (!has_ended && !process.asked_to_end() && service.failure().empty() &&
               !end_signal_comes()) {
        }
        if (has_ended) return service.end();
        was_asked = true;
        server.stop();
        const infer::EngineCounts counts = service.counts().engine;
        if (service.failure().empty())
            log_info("serve", "asked to end: no more requests are taken, {} may go on for {:.0f} s",
                     counted(counts.running + counts.waiting, "text"),
                     std::chrono::duration<double>(grace).count());
        const TimePoint limit = SystemClock().now() + grace;
        while (!has_ended && SystemClock().now() < limit && !end_signal_comes()) {
        }
        service.end();
    });
    server.run();
    has_ended = true;
    watcher.join();
    if (!was_asked)
        fail(ExitCode::kSetup,
             "the server's socket has failed: no connection can be taken any more "
             "(`ulimit -n` and the machine's memory are its limits)");
}

// Other ranks believe this one lost after TIMEOUT seconds.
Duration idle_interval(double timeout_s) {
    return std::chrono::milliseconds(static_cast<int64_t>(std::min(5.0, timeout_s / 3) * 1e3));
}

void block_end_signals() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

void serve_model(ServeArguments& arguments, RankProcess& process) {
    block_end_signals();
    DecoderSession session(arguments.decoder, process);
    if (!process.is_first()) {
        open_session(session, arguments);
        return session.finish();
    }
    const TextFiles files(arguments.decoder.model, session.folder().config.vocabulary);
    const infer::TextCodec& codec = files.require_codec();
    {
        const EndWhileLoading at_a_signal;
        open_session(session, arguments);
    }
    const int64_t pages = session.pages();
    const int64_t positions = pages * infer::kPagePositions;
    if (positions < session.context())
        log_info("serve",
                 "a text may have {} tokens, as many as the cache: the model's context is {}",
                 positions, session.context());
    serve::ServerOptions& options = arguments.server;
    options.port = static_cast<int>(arguments.port);
    options.context = std::min(session.context(), positions);
    if (!arguments.api_key_file.empty()) options.api_key = first_line_of(arguments.api_key_file);
    if (options.model.empty())
        options.model =
            std::filesystem::path(arguments.decoder.model + "/").parent_path().filename();
    serve::ChatRenderer render;
    if (files.has_chat())
        render = [&files](const nlohmann::ordered_json& messages,
                          const nlohmann::ordered_json& tools) {
            return files.chat_text(messages, tools);
        };
    infer::EngineOptions engine = arguments.engine;
    engine.sequences_max = std::min(engine.sequences_max, session.runner().rows_max());
    {
        serve::TextService service(
            session.runner(), codec, engine, files.end_tokens(),
            [&](bool goes_on) {
                if (goes_on) session.keep_waiting();
            },
            idle_interval(arguments.decoder.timeout_s));
        serve::HttpServer server(service, codec, render, options);
        const int port = server.bind();
        log_info("serve", "`{}` at http://{}:{}/v1, {} texts at once, {} tokens of cache",
                 printable(options.model), options.host, port, engine.sequences_max,
                 pages * infer::kPagePositions);
        serve_until_asked(server, service, process,
                          std::chrono::milliseconds(static_cast<int64_t>(arguments.grace_s * 1e3)));
        if (const std::exception_ptr error = service.error()) std::rethrow_exception(error);
    }
    session.finish();
}

}  // namespace

int serve_main(int argc, char** argv) {
    CommandLine app(
        {.does = "Serves a language model over HTTP, as OpenAI's completions and chat protocol. "
                 "With options of hosts and ranks (dslaunch run --help), as --hostfile, MODEL "
                 "comes first and the ranks share it.",
         .examples = {"dslaunch serve SmolLM2-135M-Instruct --port 8000",
                      "dslaunch serve Qwen2.5-7B --hostfile hostfile --weights int8"},
         .docs = "docs/generate.md"},
        "dslaunch serve");
    ServeArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    static_cast<void>(infer::Sampler(arguments.server.sampling));  // says what is out of range
    return run_as_rank([&](RankProcess& process) { serve_model(arguments, process); });
}

}  // namespace dslaunch::worker
