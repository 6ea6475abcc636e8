#include "server/metrics_text.h"

#include <fmt/core.h>

namespace dslaunch::server {

std::string metrics_text(const ServiceCounts& counts) {
    std::string text;
    const auto add = [&](const char* name, const char* kind, const char* help, auto value) {
        text += fmt::format("# HELP dslaunch_{0} {2}\n# TYPE dslaunch_{0} {1}\ndslaunch_{0} {3}\n",
                            name, kind, help, value);
    };
    const decoder::EngineCounts& engine = counts.engine;
    add("requests_running", "gauge", "Texts that take part in each step.", engine.running);
    add("requests_waiting", "gauge", "Texts that wait for a place or for memory.", engine.waiting);
    add("cache_pages_used", "gauge", "Pages of the cache of keys and values in use.",
        engine.pages_used);
    add("cache_pages", "gauge", "Pages of the cache of keys and values.", engine.pages);
    add("requests_total", "counter", "Requests for a text.", counts.requests);
    add("requests_refused_total", "counter", "Requests refused because the queue was full.",
        counts.refused);
    add("requests_cancelled_total", "counter", "Texts whose client left.", counts.cancelled);
    add("requests_finished_total", "counter", "Texts that came to their end.", counts.finished);
    add("prompt_tokens_total", "counter", "Tokens of prompts computed.", engine.prompt_tokens);
    add("generated_tokens_total", "counter", "Tokens made.", engine.made_tokens);
    add("steps_total", "counter", "Batches computed.", engine.steps);
    add("preemptions_total", "counter", "Texts whose cache was given to older ones.",
        engine.preempted);
    add("step_seconds_total", "counter", "Seconds in which batches were computed.",
        counts.step_seconds);
    add("first_token_seconds_total", "counter", "Seconds from requests to their first tokens.",
        counts.first_token_seconds);
    add("first_tokens_total", "counter", "Texts that have a first token.", counts.first_tokens);
    return text;
}

}  // namespace dslaunch::server
