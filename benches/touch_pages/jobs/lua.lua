local t = {}
for i = 1, 60000 do t[i] = { name = "n" .. i, value = i * 2 } end
for i = 1, 60000, 2 do t[i] = nil end
collectgarbage()
for i = 1, 30000 do t["k" .. i] = string.rep("x", i % 50) end
print(#t)
