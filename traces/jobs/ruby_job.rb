# Strings, arrays, hashes and JSON: ruby ruby_job.rb RECORDS. The same objects in every run.
require "json"
require "digest"


# On a stack of its own: the collector takes what the interpreter's start left on the first one for references, and
# keeps other objects with every change of the environment.
Thread.new do
  random = Random.new(7)
  words = Array.new(400) { |i| "word#{i}" + "x" * random.rand(40) }
  index = Hash.new { |hash, key| hash[key] = [] }
  records = Array.new(ARGV[0].to_i) do |id|
    text = Array.new(12) { words[random.rand(words.size)] }.join(" ")
    text.split(" ").each { |word| index[word] << id }
    { "id" => id, "text" => text, "tags" => Array.new(4) { random.rand(50) } }
  end
  digest = Digest::SHA256.new
  3.times do
    text = JSON.generate(records)
    records = JSON.parse(text).map { |record| record.merge("text" => record["text"].gsub(/word(\d)/) { "w#{$1}" }) }
    digest << text
  end
  index.sort_by { |word, ids| [-ids.size, word] }.each { |word, ids| digest << "#{word}:#{ids.join(',')}\n" }
  puts "#{records.size} records, #{index.size} words, #{digest.hexdigest}"
end.join
