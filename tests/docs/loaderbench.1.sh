shapes images --count 3000
packimg convert images/train -o train.pimg
packimg convert images/train -o short256.pimg --short-side 256 --jpeg quality=90
packimg convert images/train -o raw.pimg --short-side 256 --raw
