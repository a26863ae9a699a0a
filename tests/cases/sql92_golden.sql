/* Spark SQL of typical expressions, as filtering.sql92 writes it. */

-- region = 'x' AND price > 50.0
properties['region'] <=> 'x' AND coalesce(try_cast(properties['price'] AS DOUBLE) > 50.0D AND (try_cast(properties['price'] AS DOUBLE) < double('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'), false)

-- region = 'cn-hangzhou'
properties['region'] <=> 'cn-hangzhou'

-- region <> 'x'
coalesce(properties['region'] <> 'x', false)

-- region IN ('eu-west-1', 'eu-west-2')
coalesce(properties['region'] IN ('eu-west-1', 'eu-west-2'), false)

-- region NOT IN ('eu-west-1', 'eu-west-2')
coalesce(properties['region'] NOT IN ('eu-west-1', 'eu-west-2'), false)

-- region IS NULL
properties['region'] IS NULL

-- region IS NOT NULL AND level = 'gold'
properties['level'] <=> 'gold' AND properties['region'] IS NOT NULL

-- price > 50
coalesce(coalesce(try_cast(properties['price'] AS INT), from_csv(regexp_substr(properties['price'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) >= 51 AND NOT properties['price'] RLIKE '[^0-9+٠-꯹０-９-]', false)

-- price >= 50.0
coalesce(try_cast(properties['price'] AS DOUBLE) >= 50.0D AND (try_cast(properties['price'] AS DOUBLE) < double('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'), false)

-- price < 50.5
coalesce(try_cast(properties['price'] AS DOUBLE) < 50.5D AND (try_cast(properties['price'] AS DOUBLE) > double('-Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'), false)

-- price = 50.0
coalesce(try_cast(properties['price'] AS DOUBLE) = 50.0D, false)

-- price <> 50.0
coalesce(try_cast(properties['price'] AS DOUBLE) <> 50.0D AND properties['price'] RLIKE '^[^nN]*$|Infinity|NaN', false)

-- price BETWEEN 811.63 AND 1086.54
coalesce(try_cast(properties['price'] AS DOUBLE) BETWEEN 811.63D AND 1086.54D, false)

-- price NOT BETWEEN 10.0 AND 20.0
coalesce((try_cast(properties['price'] AS DOUBLE) < 10.0D AND (try_cast(properties['price'] AS DOUBLE) > double('-Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')) OR (try_cast(properties['price'] AS DOUBLE) > 20.0D AND (try_cast(properties['price'] AS DOUBLE) < double('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')), false)

-- qty = 5
coalesce(coalesce(try_cast(properties['qty'] AS INT), from_csv(regexp_substr(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) = 5 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', false)

-- qty <> 5
coalesce(coalesce(try_cast(properties['qty'] AS INT), from_csv(regexp_substr(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) <> 5 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', false)

-- qty <> 5 AND qty <> 6
coalesce(coalesce(try_cast(properties['qty'] AS INT), from_csv(regexp_substr(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) NOT IN (5, 6) AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', false)

-- qty BETWEEN 394 AND 400
coalesce(coalesce(try_cast(properties['qty'] AS INT), from_csv(regexp_substr(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) BETWEEN 394 AND 400 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', false)

-- qty = 1 OR qty = 2 OR qty = 3
coalesce(coalesce(try_cast(properties['qty'] AS INT), from_csv(regexp_substr(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) IN (1, 2, 3) AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', false)

-- userId > 4294967296
coalesce(coalesce(try_cast(properties['userId'] AS BIGINT), from_csv(regexp_substr(properties['userId'], '^[0-9+٠-꯹０-９-]+$'), 'v BIGINT').v) >= 4294967297L AND NOT properties['userId'] RLIKE '[^0-9+٠-꯹０-９-]', false)

-- flag = TRUE
lower(properties['flag']) <=> 'true'

-- flag = FALSE
coalesce(lower(properties['flag']) <> 'true', false)

-- TAGS CONTAINS 'Paid'
coalesce(contains(properties['TAGS'], 'Paid'), false)

-- TAGS NOT CONTAINS 'Paid'
coalesce(NOT contains(properties['TAGS'], 'Paid'), false)

-- orderId STARTSWITH 'EU-' OR orderId ENDSWITH '-X'
coalesce(endswith(properties['orderId'], '-X') OR startswith(properties['orderId'], 'EU-'), false)

-- NOT (orderId STARTSWITH 'EU-')
NOT (coalesce(startswith(properties['orderId'], 'EU-'), false))

-- a = b
coalesce(properties['a'] = properties['b'] OR (properties['a'] IS NULL AND properties['b'] IS NULL), false)

-- a <> b
(properties['a'] IS NOT NULL AND properties['b'] IS NULL) OR (properties['a'] IS NOT NULL AND properties['b'] IS NOT NULL AND NOT (coalesce(properties['a'] = properties['b'], false)))

-- a > b
coalesce((try_cast(properties['a'] AS DOUBLE) > try_cast(properties['b'] AS DOUBLE) OR (CAST(try_cast(properties['a'] AS DOUBLE) AS STRING) = '0.0' AND CAST(try_cast(properties['b'] AS DOUBLE) AS STRING) = '-0.0')) AND properties['a'] RLIKE '^[^nN]*$|Infinity|NaN' AND properties['b'] RLIKE '^[^nN]*$|Infinity|NaN', false)

-- a <= b
coalesce(try_cast(properties['a'] AS DOUBLE) <= try_cast(properties['b'] AS DOUBLE) AND NOT (CAST(try_cast(properties['a'] AS DOUBLE) AS STRING) = '0.0' AND CAST(try_cast(properties['b'] AS DOUBLE) AS STRING) = '-0.0') AND properties['a'] RLIKE '^[^nN]*$|Infinity|NaN' AND properties['b'] RLIKE '^[^nN]*$|Infinity|NaN', false)

-- 5 <> a
coalesce(properties['a'] IS NULL OR (coalesce(try_cast(properties['a'] AS INT), from_csv(regexp_substr(properties['a'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) <> 5 AND NOT properties['a'] RLIKE '[^0-9+٠-꯹０-９-]'), false)

-- 'x' <> a
NOT (properties['a'] <=> 'x')

-- price > 50.0 OR region = 'x'
coalesce((try_cast(properties['price'] AS DOUBLE) > 50.0D AND (try_cast(properties['price'] AS DOUBLE) < double('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')) OR (properties['region'] <=> 'x' AND (properties['price'] IS NULL OR (try_cast(properties['price'] AS DOUBLE) IS NOT NULL AND properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'))), false)

-- price > 50.0 OR price < 10.0
coalesce((try_cast(properties['price'] AS DOUBLE) < 10.0D AND (try_cast(properties['price'] AS DOUBLE) > double('-Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')) OR (try_cast(properties['price'] AS DOUBLE) > 50.0D AND (try_cast(properties['price'] AS DOUBLE) < double('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')), false)

-- qty > 5 OR region = 'x'
coalesce((coalesce(try_cast(properties['qty'] AS INT), from_csv(regexp_substr(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) >= 6 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]') OR (properties['region'] <=> 'x' AND (properties['qty'] IS NULL OR (coalesce(try_cast(properties['qty'] AS INT), from_csv(regexp_substr(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) IS NOT NULL AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]'))), false)

-- region = 'x' OR qty > 5
coalesce(properties['region'] <=> 'x' OR (coalesce(try_cast(properties['qty'] AS INT), from_csv(regexp_substr(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) >= 6 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]'), false)

-- (region = 'x' OR region = 'y') AND (level = 'gold' OR price > 50.0)
coalesce(properties['region'] IN ('x', 'y') AND (properties['level'] <=> 'gold' OR (try_cast(properties['price'] AS DOUBLE) > 50.0D AND (try_cast(properties['price'] AS DOUBLE) < double('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'))), false)

-- NOT (region = 'x' AND level = 'gold')
coalesce(properties['level'] <> 'gold' OR properties['region'] <> 'x', false)

-- NOT (price > 50.0)
coalesce(try_cast(properties['price'] AS DOUBLE) <= 50.0D AND (try_cast(properties['price'] AS DOUBLE) > double('-Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'), false)

-- note = 'it''s \ ${x}'
properties['note'] <=> concat('it', chr(39), 's ', chr(92), ' ', chr(36), '{x}')

-- NOT region = 'x'
false

-- region
false

-- TRUE
true

-- NULL
false
